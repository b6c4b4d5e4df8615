"""AWS on this machine: an emulator as a process, and a strict, hostile proxy in front of it."""
