//go:build !shim

package gvisor

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
)

// createSave makes a save with the given pages, and returns its directory.
func createSave(t testing.TB, p *Provider, id brig.SaveID, pages []byte) string {
	t.Helper()
	dir := p.saveDir(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{stateFile: []byte("state of " + id), indexFile: {}, pagesFile: pages, keptFile: []byte("{}")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := manifest{Version: manifestVersion, At: time.Now().UTC(), Size: int64(len(pages)) + 8192, Image: string(id)}
	if err := (layout{dir: dir}).writeJSON(manifestFile, m, false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wantPages fails the test unless a save can be unpacked and contains the
// given pages.
func wantPages(t *testing.T, p *Provider, id brig.SaveID, key, pages []byte) {
	t.Helper()
	if err := p.Unpack(t.Context(), id, key); err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	dir, err := p.restorable(id)
	if err != nil {
		t.Error(err)
		return
	}
	if got, err := os.ReadFile(filepath.Join(dir, pagesFile)); err != nil || !bytes.Equal(got, pages) {
		t.Errorf("%s: its pages are %d bytes, want %d, %v", id, len(got), len(pages), err)
	}
}

// files lists the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func newSaver(t *testing.T) *Provider {
	return &Provider{Options: Options{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}
}

// randomPages returns random pages that are partly compressible.
func randomPages(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b[:n/2])
	return b
}

// A packed save consists of its manifest and one encrypted file. Pack removes the leftovers of
// Unpack.
func TestPackedFiles(t *testing.T) {
	p, key, pages := newSaver(t), seal.NewKey(), randomPages(3<<20)
	dir := createSave(t, p, "one", pages)
	save, err := p.Pack(t.Context(), "one", key)
	if err != nil || !save.Packed || save.Bytes > 2<<20 {
		t.Fatalf("%+v, %v", save, err)
	}
	want := []string{manifestFile, packedFile}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("a packed save has the files %v", got)
	}
	sealed, err := os.ReadFile(filepath.Join(dir, packedFile))
	if err != nil || bytes.Contains(sealed, pages[:64]) || bytes.Contains(sealed, []byte("state of one")) {
		t.Errorf("the packed file has the content in plain, %v", err)
	}
	wantPages(t, p, "one", key, pages)
	if _, err := p.Pack(t.Context(), "one", key); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("packed again it has the files %v", got)
	}
	wantPages(t, p, "one", key, pages)
}

// TestDamagedPackIsRejected verifies that Unpack rejects a packed file that was modified,
// truncated, or taken from another save, and one whose manifest was replaced. The
// save remains, and can be unpacked once its own file is back.
func TestDamagedPackIsRejected(t *testing.T) {
	p, key, pages := newSaver(t), seal.NewKey(), randomPages(1<<20)
	dir, other := createSave(t, p, "one", pages), createSave(t, p, "two", pages)
	for _, id := range []brig.SaveID{"one", "two"} {
		if _, err := p.Pack(t.Context(), id, key); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sealed, m := read(dir, packedFile), read(dir, manifestFile)
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)/2] ^= 1
	const header, chunk = 42, 64<<10 + 16
	exchanged := slices.Concat(sealed[:header], sealed[header+chunk:header+2*chunk], sealed[header:header+chunk], sealed[header+2*chunk:])
	for name, c := range map[string]struct{ sealed, manifest []byte }{
		"changed":             {flipped, m},
		"cut":                 {sealed[:len(sealed)-100], m},
		"cut after a chunk":   {sealed[:header+2*chunk], m},
		"chunks exchanged":    {exchanged, m},
		"empty":               {nil, m},
		"of another save":     {read(other, packedFile), m},
		"of another manifest": {sealed, bytes.Replace(m, []byte("one"), []byte("two"), 1)},
	} {
		for file, content := range map[string][]byte{packedFile: c.sealed, manifestFile: c.manifest} {
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Unpack(t.Context(), "one", key); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("%s: %v", name, err)
		}
		if got := files(t, dir); !slices.Equal(got, []string{manifestFile, packedFile}) {
			t.Errorf("%s: the files are %v", name, got)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, packedFile), sealed, 0o600), os.WriteFile(filepath.Join(dir, manifestFile), m, 0o600)); err != nil {
		t.Fatal(err)
	}
	wantPages(t, p, "one", key, pages)
}

// TestInterruptedPack verifies that a save keeps its content if the server dies
// at any point of a pack or an unpack, and that the next pack completes.
func TestInterruptedPack(t *testing.T) {
	pages := randomPages(300 << 10)
	for name, leave := range map[string]func(dir string, sealed []byte) error{
		"part of the packed file": func(dir string, sealed []byte) error {
			return os.WriteFile(filepath.Join(dir, packedFile+newSuffix), sealed[:1000], 0o600)
		},
		"both forms": func(dir string, sealed []byte) error {
			return os.WriteFile(filepath.Join(dir, packedFile), sealed, 0o600)
		},
		"some plain files": func(dir string, sealed []byte) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, packedFile), sealed, 0o600), os.Remove(filepath.Join(dir, stateFile)))
		},
		"part of an unpack": func(dir string, sealed []byte) error {
			part := filepath.Join(dir, unpackedDir+newSuffix)
			return errors.Join(os.WriteFile(filepath.Join(dir, packedFile), sealed, 0o600), os.Mkdir(part, 0o700),
				os.WriteFile(filepath.Join(part, stateFile), []byte("x"), 0o600), removePlainFiles(dir))
		},
		"an unpack that a power failure has truncated": func(dir string, sealed []byte) error {
			whole := filepath.Join(dir, unpackedDir)
			err := errors.Join(os.WriteFile(filepath.Join(dir, packedFile), sealed, 0o600), os.Mkdir(whole, 0o700), removePlainFiles(dir))
			for _, name := range (&manifest{}).plainFiles() {
				err = errors.Join(err, os.WriteFile(filepath.Join(whole, name), nil, 0o600))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, key := newSaver(t), seal.NewKey()
			createSave(t, p, "one", pages)
			dir := p.saveDir("one")
			m, err := os.ReadFile(filepath.Join(dir, manifestFile))
			if err == nil {
				_, err = p.Pack(t.Context(), "one", key)
			}
			if err != nil {
				t.Fatal(err)
			}
			sealed, err := os.ReadFile(filepath.Join(dir, packedFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, packedFile)); err != nil {
				t.Fatal(err)
			}
			createSave(t, p, "one", pages)
			if err := errors.Join(os.WriteFile(filepath.Join(dir, manifestFile), m, 0o600), leave(dir, sealed)); err != nil {
				t.Fatal(err)
			}
			p = &Provider{Options: p.Options} // simulates a restarted server
			if at, err := p.restorable("one"); err == nil && at != dir {
				t.Errorf("before an unpack it would be restored from %s", at)
			}
			wantPages(t, p, "one", key, pages)
			if _, err := p.Pack(t.Context(), "one", key); err != nil {
				t.Fatal(err)
			}
			if got := files(t, dir); !slices.Equal(got, []string{manifestFile, packedFile}) {
				t.Errorf("the next pack leaves the files %v", got)
			}
			wantPages(t, p, "one", key, pages)
		})
	}
}

func removePlainFiles(dir string) (err error) {
	for _, name := range (&manifest{}).plainFiles() {
		err = errors.Join(err, os.Remove(filepath.Join(dir, name)))
	}
	return err
}

// TestUnpackWithoutSpace verifies that an unpack that would fill the disk fails
// before it writes the file, and leaves no files. The check uses the sizes in the
// packed file, because the manifest contains only the disk space that the files used.
func TestUnpackWithoutSpace(t *testing.T) {
	p, key := newSaver(t), seal.NewKey()
	dir := createSave(t, p, "one", nil)
	_, where, _, err := p.locate("one")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, packedFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sealed, err := seal.NewWriter(f, key, where...)
	if err != nil {
		t.Fatal(err)
	}
	squeezed, err := zstd.NewWriter(sealed)
	if err != nil {
		t.Fatal(err)
	}
	huge := tar.NewWriter(squeezed)
	if err := huge.WriteHeader(&tar.Header{Name: stateFile, Size: 1 << 60, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(squeezed.Close(), sealed.Close()); err != nil {
		t.Fatal(err)
	}
	if err := p.Unpack(t.Context(), "one", key); brig.KindOf(err) != brig.Unavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("unpack: %v", err)
	}
	if got := files(t, dir); slices.Contains(got, unpackedDir) || slices.Contains(got, unpackedDir+newSuffix) {
		t.Errorf("the files are %v", got)
	}
}

// TestCanceledPackChangesNothing verifies that a canceled pack or unpack does not change the
// save.
func TestCanceledPackChangesNothing(t *testing.T) {
	p, key, pages := newSaver(t), seal.NewKey(), randomPages(1<<20)
	dir := createSave(t, p, "one", pages)
	before := files(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Pack(ctx, "one", key); !errors.Is(err, context.Canceled) {
		t.Errorf("pack: %v", err)
	}
	if got := files(t, dir); !slices.Equal(got, before) {
		t.Errorf("the files are %v, and were %v", got, before)
	}
	if _, err := p.Pack(t.Context(), "one", key); err != nil {
		t.Fatal(err)
	}
	if err := p.Unpack(ctx, "one", key); !errors.Is(err, context.Canceled) {
		t.Errorf("unpack: %v", err)
	}
	wantPages(t, p, "one", key, pages)
}

// BenchmarkUnpack measures the time that a packed save adds to a resume.
func BenchmarkUnpack(b *testing.B) {
	for name, n := range map[string]int{"5MiB": 5 << 20, "256MiB": 256 << 20} {
		p, key := &Provider{Options: Options{DataDir: b.TempDir(), Log: slog.New(slog.DiscardHandler)}}, seal.NewKey()
		createSave(b, p, "one", randomPages(n))
		if _, err := p.Pack(b.Context(), "one", key); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := p.Unpack(b.Context(), "one", key); err != nil {
					b.Fatal(err)
				}
				if _, err := p.Pack(b.Context(), "one", key); err != nil { // removes the unpacked files
					b.Fatal(err)
				}
			}
		})
	}
}
