-- The tables of an application that sells pictures. Whoever orders one pays a credit, and gets it back if it fails.
CREATE TABLE IF NOT EXISTS accounts (
    id bigint PRIMARY KEY,
    credits integer NOT NULL CHECK (credits >= 0)
);
CREATE TABLE IF NOT EXISTS reservations (
    id uuid PRIMARY KEY,
    account bigint NOT NULL REFERENCES accounts,
    state text NOT NULL DEFAULT 'reserved' CHECK (state IN ('reserved', 'captured', 'refunded'))
);
