package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/brig-run/brig"
)

// index maps names to digests.
type index struct {
	Version int               `json:"version"`
	Names   map[string]string `json:"names"`
	Host    hostPointer       `json:"host"`
	// Manifests maps the digest of a manifest, from a registry or a layout, to
	// the image's digest.
	Manifests map[string]string `json:"manifests,omitempty"`
	// Aliases maps an alias to its target: a name or a digest.
	Aliases map[string]string `json:"aliases,omitempty"`
}

// hostPointer is the host image for a fingerprint of the host.
type hostPointer struct {
	Fingerprint string `json:"fingerprint"`
	Digest      string `json:"digest"`
}

const indexVersion = 1

func (x *index) namesOf(digest string) []string {
	var names []string
	for n, d := range x.Names {
		if d == digest {
			names = append(names, n)
		}
	}
	for a, target := range x.Aliases {
		if x.Names[a] == "" && (x.find(target) == digest || target == brig.HostImage && x.Host.Digest == digest) {
			names = append(names, a)
		}
	}
	slices.Sort(names)
	return names
}

// hasName reports whether an image has a name. An alias is not a name.
func (x *index) hasName(digest string) bool {
	for _, d := range x.Names {
		if d == digest {
			return true
		}
	}
	return false
}

// aliasOf returns the alias that ref refers to, and its target. An image's name
// takes precedence over an alias.
func (x *index) aliasOf(ref string) (alias, target string) {
	if isDigest(ref) || x.find(ref) != "" {
		return "", ""
	}
	if r, err := parseReference(ref); err == nil && x.Aliases[ref] == "" {
		ref = r.shortName()
	}
	return ref, x.Aliases[ref]
}

// readIndex needs no lock, because writers replace the file as a whole.
func (s *Store) readIndex() (*index, error) {
	x := &index{Version: indexVersion, Names: map[string]string{}, Manifests: map[string]string{}}
	b, err := os.ReadFile(s.path("index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	if err := json.Unmarshal(b, x); err != nil {
		return nil, fmt.Errorf("read image index: %w", err)
	}
	if x.Version != indexVersion {
		return nil, fmt.Errorf("read image index: it is of version %d, not %d", x.Version, indexVersion)
	}
	if x.Names == nil {
		x.Names = map[string]string{}
	}
	if x.Manifests == nil {
		x.Manifests = map[string]string{}
	}
	return x, nil
}

// updateIndex calls f with the index under an exclusive lock across processes. It
// writes nothing when f returns an error.
func (s *Store) updateIndex(ctx context.Context, f func(*index) error) error {
	unlock, err := lockFile(ctx, s.path("lock"))
	if err != nil {
		return fmt.Errorf("lock image index: %w", err)
	}
	defer unlock()
	x, err := s.readIndex()
	if err != nil {
		return err
	}
	if err := f(x); err != nil {
		return err
	}
	b, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return fmt.Errorf("encode image index: %w", err)
	}
	if err := writeWhole(s.path("index.json"), b); err != nil {
		return fmt.Errorf("write image index: %w", err)
	}
	return nil
}

// writeWhole replaces a file atomically: a crash leaves either the old or the new content. Only one
// writer at a time may replace the same file.
func writeWhole(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the renames in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
