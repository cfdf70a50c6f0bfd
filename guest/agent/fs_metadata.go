package agent

import (
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/brig-run/brig/internal/nofollow"
)

// metadataPrefix is the prefix of the extended attributes that contain a file's
// metadata. Programs in E2B's sandboxes expect this prefix.
const metadataPrefix = "user.e2b."

// maxMetadata is the maximum size of the metadata of one file, in bytes. The
// agent must enforce it because programs in the sandbox can also set such
// attributes.
const maxMetadata = 4096

// listAttributes returns the names, including the prefix, of a file's metadata
// attributes. list reads the names of all extended attributes.
func listAttributes(list func([]byte) (int, error)) []string {
	n, err := list(nil)
	if err != nil || n <= 0 {
		return nil // most files have none, and many file systems do not support them
	}
	b := make([]byte, n)
	if n, err = list(b); err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Split(string(b[:n]), "\x00"), func(a string) bool {
		return len(a) <= len(metadataPrefix) || !strings.HasPrefix(a, metadataPrefix)
	})
}

// readMetadata reads the metadata of the file at a path. A link has no metadata.
func readMetadata(name string) map[string]string {
	return collectMetadata(func(b []byte) (int, error) { return nofollow.Listxattr(name, b) },
		func(a string, b []byte) (int, error) { return nofollow.Getxattr(name, a, b) })
}

// readOpenMetadata reads the metadata of an open file.
func readOpenMetadata(f *os.File) map[string]string {
	return collectMetadata(func(b []byte) (int, error) { return nofollow.Flistxattr(f, b) },
		func(a string, b []byte) (int, error) { return nofollow.Fgetxattr(f, a, b) })
}

// collectMetadata returns up to maxMetadata bytes of a file's metadata, which it reads with the
// given functions.
func collectMetadata(list func([]byte) (int, error), get func(string, []byte) (int, error)) map[string]string {
	var out map[string]string
	remaining := maxMetadata
	for _, a := range listAttributes(list) {
		b := make([]byte, maxMetadata)
		n, err := get(a, b)
		key := strings.TrimPrefix(a, metadataPrefix)
		if err != nil || n < 0 || len(key)+n > remaining {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = string(b[:n])
		remaining -= len(key) + n
	}
	return out
}

// setMetadata replaces the metadata of an open file by m. It uses the descriptor, because the name
// may now refer to another file.
func setMetadata(f *os.File, m map[string]string) error {
	for _, a := range listAttributes(func(b []byte) (int, error) { return nofollow.Flistxattr(f, b) }) {
		if _, keep := m[strings.TrimPrefix(a, metadataPrefix)]; !keep {
			_ = nofollow.Fremovexattr(f, a)
		}
	}
	for k, v := range m {
		err := nofollow.Fsetxattr(f, metadataPrefix+k, []byte(v))
		if err == syscall.ENOTSUP {
			return newPathError("path '%s' is on a file system that keeps no metadata", f.Name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
