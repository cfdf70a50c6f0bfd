package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/brig-run/brig"
)

// makeFolder creates the data folder if it does not exist, and rejects a folder
// that another user could change.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return brig.Errorf(brig.NotInitialized, "%s", reasonOf(err)).
			WithHint("choose a data folder that you can write to with --data-dir or BRIG_DATA_DIR")
	}
	return checkFolder(dir, os.Geteuid())
}

// checkFolder rejects a data folder that a user other than uid owns or may
// write to, as ssh does. A user who can create files in the directory controls
// the server's keys, its records and its write targets. Other users must also
// be unable to replace the directory through its parent directories.
func checkFolder(dir string, uid int) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot read the data folder").WithHint("choose another folder with --data-dir").Because(err)
	}
	info, owner, err := readOwner(real)
	if err != nil {
		return err
	}
	if owner != uid {
		return brig.Errorf(brig.NotInitialized, "the data folder %s belongs to another user (uid %d, not %d)", real, owner, uid).
			WithHint("run brig as its owner, choose another with --data-dir, or: chown -R %d %s", uid, real)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return brig.Errorf(brig.NotInitialized, "other users can write to the data folder %s (mode %04o)", real, info.Mode().Perm()).
			WithHint("inspect %s and run chmod go-w on it, or choose another folder with --data-dir", real)
	}
	for parent := filepath.Dir(real); ; parent = filepath.Dir(parent) {
		info, owner, err := readOwner(parent)
		if err != nil {
			return err
		}
		if owner != uid && owner != 0 {
			return brig.Errorf(brig.NotInitialized, "the data folder is below %s, which belongs to another user (uid %d)", parent, owner).
				WithHint("choose another with --data-dir: the owner of %s can replace this one", parent)
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return brig.Errorf(brig.NotInitialized, "every user can write to %s, which contains the data folder", parent).
				WithHint("chmod o-w %s, or choose another with --data-dir", parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func readOwner(path string) (fs.FileInfo, int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, brig.Errorf(brig.NotInitialized, "cannot read the data folder").WithHint("choose another folder with --data-dir").Because(err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, 0, brig.Errorf(brig.NotInitialized, "unknown owner of %s", path)
	}
	return info, int(s.Uid), nil
}
