"""Files of old and foreign formats are what the tests of this folder read, no traces to replay."""

collect_ignore = ["old_formats"]
