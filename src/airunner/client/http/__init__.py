"""HTTP as our calls need it: one interface, our own connections behind it, the library's where a proxy is."""
