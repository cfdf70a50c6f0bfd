package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/brig-run/brig"
)

// maxLine is the maximum length of the line of one entry: a path and a target
// of maxPath bytes, with up to six bytes of JSON per byte.
const maxLine = 64 << 10

// scanEntries decodes the entries of an untrusted manifest one after the other,
// and passes each to f. It keeps only one line in memory.
func scanEntries(r io.Reader, f func(*entry) error) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var l manifestLine
		err := dec.Decode(&l)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decode manifest: %w", err)
		}
		e := &entry{digest: l.Digest}
		e.Path, e.Target = l.Path+string(l.PathB64), l.Target+string(l.TargetB64)
		e.Type, e.Mode, e.Size = entryType(l.Type), l.Mode, l.Size
		if e.Type == brig.RegularFile {
			e.Modified = time.Unix(0, l.Modified).UTC()
		}
		if err := f(e); err != nil {
			return err
		}
	}
}

// entryType returns the constant for a known type, so that entries share its
// memory.
func entryType(s string) brig.EntryType {
	for _, t := range []brig.EntryType{brig.RegularFile, brig.Directory, brig.Symlink} {
		if s == string(t) {
			return t
		}
	}
	return brig.EntryType(s)
}

// hashingReader reads a manifest and computes its digest. It fails if the manifest
// or one of its lines is too long.
type hashingReader struct {
	r    io.Reader
	hash hash.Hash
	size int64
	line int   // bytes since the last line break
	err  error // any error except io.EOF
}

// Read implements io.Reader.
func (h *hashingReader) Read(p []byte) (int, error) {
	if h.err != nil {
		return 0, h.err
	}
	n, err := h.r.Read(p)
	h.hash.Write(p[:n])
	h.size += int64(n)
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		h.line = n - i - 1
	} else {
		h.line += n
	}
	switch {
	case h.size > maxManifest, h.line > maxLine:
		h.err = fmt.Errorf("%w: a manifest is too large", errBroken)
	case err != nil && !errors.Is(err, io.EOF):
		h.err = err
	}
	if h.err != nil {
		return 0, h.err
	}
	return n, err
}

// scan passes the entries of a stored manifest to f, in their stored order, and
// returns the stored size. Each entry that f receives is valid by itself, but
// its parent may not be a directory. The entries are those that a commit has
// written only if scan returns no error.
func (s *Store) scan(ctx context.Context, tenant, digest string, f func(*entry) error) (int64, error) {
	r, err := s.o.Get(ctx, blobKey(tenant, digest))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	h := &hashingReader{r: r, hash: sha256.New()}
	n := 0
	err = scanEntries(h, func(e *entry) error {
		if n++; n > brig.MaxWorkspaceFiles {
			return errors.New("manifest: it has too many entries")
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("manifest: %.100q: %w", e.Path, err)
		}
		return f(e)
	})
	switch {
	case h.err != nil:
		return h.size, h.err // the store does not respond, or the manifest is too large
	case err != nil:
		return h.size, fmt.Errorf("%w: %w", errBroken, err)
	case hex.EncodeToString(h.hash.Sum(nil)) != digest:
		return h.size, fmt.Errorf("%w: manifest %s has another digest", errBroken, digest)
	}
	return h.size, nil
}
