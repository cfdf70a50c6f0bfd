package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// Bounds of the uploaded files. Each counts as at least minUpload, which bounds their number.
const (
	minUpload    = brig.MiB
	maxAllBytes  = 10 * brig.GiB // of all tenants
	uploadUnused = 7 * 24 * time.Hour
)

// uploads stores the archives that clients upload for COPY steps, by tenant and by the hash that the
// client computes of the files. When a tenant's archives exceed their bound, the least recently used
// are removed.
type uploads struct {
	dir  string
	max  int64 // bytes of a tenant
	now  func() time.Time
	mu   sync.Mutex       // guards the field below, and is held while files make room for others
	busy map[string]int64 // bytes that a tenant's uploads may still write
}

func newUploads(dir string, maxBytes int64, now func() time.Time) (*uploads, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of uploads: %w", err)
	}
	partial, err := filepath.Glob(filepath.Join(dir, "*", "*.partial"))
	if err != nil {
		return nil, fmt.Errorf("find interrupted uploads: %w", err)
	}
	for _, p := range partial {
		if err := os.Remove(p); err != nil {
			return nil, fmt.Errorf("remove an interrupted upload: %w", err)
		}
	}
	u := &uploads{dir: dir, max: maxBytes, now: now, busy: map[string]int64{}}
	return u, u.removeUnused()
}

// removeUnused removes archives that were not used for a long time, among them those of former tenants.
func (u *uploads) removeUnused() error {
	files, err := u.list(u.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if u.now().Sub(f.used) > uploadUnused {
			if err := os.Remove(f.path); err != nil {
				return fmt.Errorf("remove an upload: %w", err)
			}
			_ = os.Remove(filepath.Dir(f.path)) // fails unless the folder is empty
		}
	}
	return nil
}

// upload is a stored archive.
type upload struct {
	path string
	size int64 // as it counts
	used time.Time
}

// list returns the archives below a folder, the least recently used ones first.
func (u *uploads) list(folder string) (files []upload, err error) {
	err = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !isHash(e.Name()) {
			return err
		}
		if info, err := e.Info(); err == nil {
			files = append(files, upload{path, max(info.Size(), minUpload), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	slices.SortFunc(files, func(a, b upload) int { return a.used.Compare(b.used) })
	return files, nil
}

// folder returns the folder of a tenant. Its name includes the time at which the tenant was created,
// so that a later tenant of the same name does not find the files.
func (u *uploads) folder(a brig.Actor) string {
	sum := sha256.Sum256([]byte(a.Tenant + "\x00" + a.Founded.UTC().Format(time.RFC3339Nano)))
	return filepath.Join(u.dir, hex.EncodeToString(sum[:16]))
}

// isHash reports whether s is a hash of files: 64 hexadecimal digits.
func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func errBadHash() error {
	return brig.InvalidField("hash", "it is not 64 hexadecimal digits")
}

// HasFiles reports whether the tenant has uploaded the files with a hash.
func (b *Builder) HasFiles(ctx context.Context, hash string) (bool, error) {
	if !isHash(hash) {
		return false, errBadHash()
	}
	now := b.options.Now() // the caller is about to use the files, so others make room first
	err := os.Chtimes(filepath.Join(b.uploads.folder(brig.ActorFrom(ctx)), hash), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// PutFiles stores an archive of size bytes for COPY steps, and replaces one with the same hash.
func (b *Builder) PutFiles(ctx context.Context, hash string, size int64, r io.Reader) error {
	if !isHash(hash) {
		return errBadHash()
	}
	if err := b.options.Service.Authorize(ctx, brig.OpUploadFiles, hash, func(brig.Tenant) error { return nil }); err != nil {
		return err
	}
	return b.uploads.put(brig.ActorFrom(ctx), hash, size, r)
}

func (u *uploads) put(a brig.Actor, hash string, size int64, r io.Reader) error {
	folder := u.folder(a)
	release, err := u.reserve(folder, size)
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder of uploads: %w", err)
	}
	f, err := os.CreateTemp(folder, hash+".*.partial")
	if err != nil {
		return fmt.Errorf("store an upload: %w", err)
	}
	defer os.Remove(f.Name()) // fails after the rename
	n, err := io.Copy(f, io.LimitReader(r, size+1))
	if cerr := f.Close(); err == nil && cerr != nil {
		return fmt.Errorf("store an upload: %w", cerr)
	}
	if _, ours := errors.AsType[*fs.PathError](err); ours {
		return fmt.Errorf("store an upload: %w", err)
	}
	if err != nil {
		return brig.Errorf(brig.InvalidArgument, "the body ended before it was whole").Because(err)
	}
	if n != size {
		return brig.Errorf(brig.InvalidArgument, "the body has %d bytes, and the header Content-Length says %d", n, size)
	}
	if err := os.Rename(f.Name(), filepath.Join(folder, hash)); err != nil {
		return fmt.Errorf("store an upload: %w", err)
	}
	return nil
}

// reserve makes room for an upload of size bytes in a tenant's folder.
func (u *uploads) reserve(folder string, size int64) (release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	counted := max(size, minUpload)
	if size < 0 || counted > u.max-u.busy[folder] {
		return nil, brig.Errorf(brig.RateLimited, "the uploaded files of a tenant take at most %s", brig.FormatBytes(u.max)).
			WithHint("upload fewer or smaller files, for example with a .dockerignore file")
	}
	all := int64(0)
	for _, n := range u.busy {
		all += n
	}
	if err := u.trim(folder, u.max-u.busy[folder]-counted); err != nil {
		return nil, err
	}
	if err := u.trim(u.dir, maxAllBytes-all-counted); err != nil {
		return nil, err
	}
	u.busy[folder] += counted
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.busy[folder] -= counted; u.busy[folder] == 0 {
			delete(u.busy, folder)
		}
	}, nil
}

// trim removes the least recently used archives below a folder until the others take at most limit
// bytes.
func (u *uploads) trim(folder string, limit int64) error {
	files, err := u.list(folder)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		if total <= limit {
			break
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an upload: %w", err)
		}
		total -= f.size
	}
	return nil
}

// open opens an uploaded archive, which counts as its use.
func (u *uploads) open(a brig.Actor, hash string) (io.ReadCloser, error) {
	name := filepath.Join(u.folder(a), hash)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failf("COPY: the files with the hash %s were not uploaded", hash)
	}
	if err != nil {
		return nil, fmt.Errorf("open an upload: %w", err)
	}
	now := u.now()
	if err := os.Chtimes(name, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may just make room
		_ = f.Close() // it was opened for reading
		return nil, fmt.Errorf("mark an upload as used: %w", err)
	}
	return f, nil
}
