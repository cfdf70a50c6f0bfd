package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// A packed save consists of packedFile, which replaces the plain files, and the
// unchanged manifest. The content of packedFile is a tar archive of the plain files,
// compressed with zstd, and encrypted with the save's ID and manifest as authenticated
// data. While packedFile exists, plain files beside it are left over from an
// interrupted pack, and plain files in unpackedDir are for restores.
const (
	packedFile  = "packed.seal"
	unpackedDir = "unpacked"
)

// plainFiles lists the files of a save that Pack archives and removes.
func (m *manifest) plainFiles() []string {
	if m.FilesOnly {
		return layerFiles()
	}
	return append(savedFiles(false), keptFile)
}

// isPacked reports whether a save is packed, and returns the disk space that it uses.
func isPacked(dir string) (bool, int64, error) {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(dir, packedFile), &st)
	if errors.Is(err, unix.ENOENT) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("look at the packed save: %w", err)
	}
	return true, st.Blocks * 512, nil
}

// restorable returns the directory with the plain files of a save.
func (p *Provider) restorable(id brig.SaveID) (string, error) {
	dir := p.saveDir(id)
	packed, _, err := isPacked(dir)
	if err != nil || !packed {
		return dir, err
	}
	if _, made := p.unpacked.Load(id); !made {
		return "", brig.Errorf(brig.FailedPrecondition, "the save is packed").WithHint("unpack it first")
	}
	return filepath.Join(dir, unpackedDir), nil
}

// removePlain removes the unencrypted files of a packed save.
func removePlain(dir string, plain []string) error {
	errs := []error{os.RemoveAll(filepath.Join(dir, unpackedDir)), os.RemoveAll(filepath.Join(dir, unpackedDir+newSuffix))}
	for _, name := range append(plain, packedFile+newSuffix) {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
