package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/brig-run/brig"
)

// A save without memory contains the writable layer above the image in gVisor's file system
// checkpoint format: a description, a tar archive of the names and attributes, the index of
// the layer's pages, and the pages. The format is versioned, and does not depend on the build
// or the CPU. The save does not include the guest's tmpfs mounts (/tmp, /dev/shm).
const (
	layerFile = "layer.pb"
	namesFile = "layer.tar"
)

// layerFlag is gVisor's flag for the descriptors of the layer.
const layerFlag = "fs-restore-fds"

// layerFiles lists the files of the layer in the order that gVisor expects.
func layerFiles() []string { return []string{layerFile, namesFile, indexFile, pagesFile} }

// savedFiles lists gVisor's files of a save in the order that gVisor expects.
func savedFiles(filesOnly bool) []string {
	if filesOnly {
		return layerFiles()
	}
	return []string{stateFile, indexFile, pagesFile}
}

// saveLayer writes the files of a save without memory. Programs in the guest cannot prevent such a
// save. The sentry must be paused, and remains paused.
func (s *sentry) saveLayer(dir string) error {
	files, err := openAll(dir, layerFiles(), os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return err
	}
	defer closeFiles(files)
	return s.calls.callWith(files, call{"containerManager.FSSave", map[string]any{"exit_after_saving": false}})
}

// donateLayer donates the files of a save without memory to a sentry, which boots with
// these files. It does nothing if there is no save.
func (b *sentryLaunch) donateLayer(dir string) error {
	if dir == "" {
		return nil
	}
	files, err := openAll(dir, layerFiles(), os.O_RDONLY)
	if err != nil {
		return err
	}
	for _, f := range files {
		b.donate(layerFlag, f)
	}
	return nil
}

// namesShare limits the archive of a layer to 1/namesShare of the memory limit, because a
// boot decodes the archive in memory.
const namesShare = 8

// errLayer is the prefix of the errors of checkLayer.
var errLayer = errors.New("the layer cannot be kept")

// checkLayer rejects a layer with which a sandbox cannot boot, or that would grow with each
// save. A layer may grow because it also contains the pages of files that were deleted while
// open, although these pages belong to no file after a boot.
func checkLayer(dir string, limits brig.Limits) error {
	size := func(name string) int64 {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return 0 // the caller flushes the file to disk, and fails
		}
		return st.Size()
	}
	if n := size(pagesFile); n > limits.Disk {
		return fmt.Errorf("%w: it has %s with files that are deleted, and the disk %s", errLayer, brig.FormatBytes(n), brig.FormatBytes(limits.Disk))
	}
	if n, limit := size(namesFile), limits.Memory/namesShare; n > limit {
		return fmt.Errorf("%w: the names of its files take %s, and the memory permits %s", errLayer, brig.FormatBytes(n), brig.FormatBytes(limit))
	}
	return nil
}

// layerError converts an error of checkLayer in the shim to the error of a save. It
// returns nil for any other error.
func layerError(err error) error {
	_, what, ok := strings.Cut(err.Error(), errLayer.Error()+": ")
	if !ok {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "the files of the sandbox cannot be kept without its memory: %s", what).
		WithHint("remove files, pause the sandbox with its memory, or create one with more memory and disk").Because(err)
}
