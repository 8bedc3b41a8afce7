"""The vocabulary: frozen records and protocols shared by every floor above; standard library only."""
