-- An incident is about a version, shows sessions, and is open until somebody (or a change of the rewards) closes it.
ALTER TABLE incidents ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE incidents ADD COLUMN rule TEXT NOT NULL DEFAULT '';
ALTER TABLE incidents ADD COLUMN sessions TEXT NOT NULL DEFAULT '[]';
ALTER TABLE incidents ADD COLUMN closed_at REAL;
ALTER TABLE incidents ADD COLUMN closed_because TEXT NOT NULL DEFAULT '';
