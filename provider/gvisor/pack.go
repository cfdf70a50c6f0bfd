//go:build !shim

package gvisor

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/seal"
)

var _ brig.Saver = (*Provider)(nil)

const (
	packWindow = 1 << 20  // window size of the compression; limits the memory that unpacking needs
	packSpare  = 64 << 20 // disk space that a pack or an unpack leaves free
	packFlush  = 8 << 20  // amount after which a pack flushes its data to disk
)

// locate returns the directory of a save, the location to which its encryption is
// bound, and the names of its plain files.
func (p *Provider) locate(id brig.SaveID) (dir string, where, plain []string, err error) {
	m, err := p.readManifest(id)
	if err != nil {
		return "", nil, nil, err
	}
	dir = p.saveDir(id)
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return "", nil, nil, fmt.Errorf("read the manifest: %w", err)
	}
	sum := sha256.Sum256(b)
	return dir, []string{"save", string(id), hex.EncodeToString(sum[:])}, m.plainFiles(), nil
}

// Pack implements brig.Saver.
func (p *Provider) Pack(ctx context.Context, id brig.SaveID, key []byte) (*brig.Save, error) {
	dir, where, plain, err := p.locate(id)
	if err != nil {
		return nil, err
	}
	packed, _, err := isPacked(dir)
	if err == nil && !packed {
		err = atLowPriority(func() error { return pack(ctx, dir, plain, key, where) })
	}
	if err == nil {
		p.unpacked.Delete(id)
		err = removePlain(dir, plain)
	}
	failpoint.Hit("pack.removed")
	if err != nil {
		return nil, err
	}
	return p.GetSave(ctx, id)
}

// atLowPriority calls f on a separate thread with the lowest CPU and I/O priority.
func atLowPriority(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		// Ignore errors: without the required permissions, f runs at normal
		// priority.
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
		const whoProcess, idleClass = 1, 3 << 13
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, idleClass)
		done <- f()
	}()
	return <-done
}

// pack writes the packed file of a save.
func pack(ctx context.Context, dir string, plain []string, key []byte, where []string) (err error) {
	if err := checkSpace(dir, plain); err != nil {
		return err
	}
	name := filepath.Join(dir, packedFile)
	f, err := os.OpenFile(name+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return packError(err, "pack the save")
	}
	defer func() {
		if err != nil {
			err = errors.Join(packError(err, "pack the save"), os.Remove(name+newSuffix))
		}
	}()
	defer f.Close()
	sealed, err := seal.NewWriter(&packWriter{ctx: ctx, f: f}, key, where...)
	if err != nil {
		return err
	}
	// With a concurrency of 1, the encoder works on the calling thread only.
	squeezed, err := zstd.NewWriter(sealed, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	err = writeTar(squeezed, dir, plain)
	if err = errors.Join(err, squeezed.Close()); err != nil {
		return err
	}
	if err := errors.Join(sealed.Close(), f.Sync()); err != nil {
		return err
	}
	failpoint.Hit("pack.written")
	if err := errors.Join(ctx.Err(), os.Rename(name+newSuffix, name)); err != nil {
		return err
	}
	_, err = syncPath(dir)
	failpoint.Hit("pack.renamed")
	return err
}

func packError(err error, what string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fullError(err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// checkSpace returns an error if the disk does not have enough space for a second
// copy of a save.
func checkSpace(dir string, plain []string) error {
	var total int64
	for _, name := range plain {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("look at the save: %w", err)
		}
		total += st.Size()
	}
	return checkFree(dir, total)
}

// checkFree returns an error if the disk of a directory does not have enough space for
// a number of bytes and packSpare.
func checkFree(dir string, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at the disk: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free-packSpare < bytes {
		return fullError(fmt.Errorf("%s are free, and the save needs %s beside %s that stay free",
			brig.FormatBytes(free), brig.FormatBytes(bytes), brig.FormatBytes(packSpare)))
	}
	return nil
}

// packWriter writes a packed file. It flushes data to disk in small amounts, so that
// a cancellation of ctx takes effect quickly.
type packWriter struct {
	ctx     context.Context
	f       *os.File
	unsaved int
}

func (w *packWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.f.Write(b)
	if w.unsaved += n; err == nil && w.unsaved >= packFlush {
		w.unsaved, err = 0, unix.Fdatasync(int(w.f.Fd()))
	}
	return n, err
}

func writeTar(to io.Writer, dir string, plain []string) error {
	t := tar.NewWriter(to)
	for _, name := range plain {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read the save: %w", err)
		}
		st, err := f.Stat()
		if err == nil {
			err = t.WriteHeader(&tar.Header{Name: name, Size: st.Size(), Mode: 0o600, Format: tar.FormatPAX})
		}
		if err == nil {
			_, err = io.Copy(t, f)
		}
		if f.Close(); err != nil {
			return err
		}
	}
	return t.Close()
}

// Unpack implements brig.Saver. It does not flush the unpacked files, because the
// packed file remains. Only this process may use the unpacked files, since they may
// be empty after a power failure.
func (p *Provider) Unpack(ctx context.Context, id brig.SaveID, key []byte) error {
	dir, where, plain, err := p.locate(id)
	if err != nil {
		return err
	}
	packed, _, err := isPacked(dir)
	if err != nil || !packed {
		return err
	}
	if _, made := p.unpacked.Load(id); made {
		return nil
	}
	to := filepath.Join(dir, unpackedDir)
	began := time.Now()
	if err := errors.Join(os.RemoveAll(to), os.RemoveAll(to+newSuffix), os.Mkdir(to+newSuffix, 0o700)); err != nil {
		return packError(err, "unpack the save")
	}
	err = unpack(ctx, filepath.Join(dir, packedFile), to+newSuffix, plain, key, where)
	if err == nil {
		err = os.Rename(to+newSuffix, to)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(to+newSuffix))
	}
	p.Log.DebugContext(ctx, "unpacked a save", "save", id, "took", time.Since(began), "err", err)
	switch {
	case errors.Is(err, seal.ErrForged):
		return brig.Errorf(brig.FailedPrecondition, "the save cannot be decrypted: its file was changed or damaged, or belongs to another save").
			WithHint("restore the file of this save from a backup, or remove the sandbox").Because(err)
	case err != nil:
		return packError(err, "unpack the save")
	}
	p.unpacked.Store(id, true)
	return nil
}

func unpack(ctx context.Context, from, to string, plain []string, key []byte, where []string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	sealed, err := seal.NewReader(f, key, where...)
	if err != nil {
		return err
	}
	tarred, err := zstd.NewReader(sealed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(packWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer tarred.Close()
	t := tar.NewReader(tarred)
	for _, name := range plain {
		h, err := t.Next()
		if err != nil {
			return err
		}
		if h.Name != name {
			return fmt.Errorf("the save has the file %q instead of %q", brig.Clip(h.Name, 40), name)
		}
		// Check the space for each file here, because only the archive
		// contains the sizes.
		if err := checkFree(to, h.Size); err != nil {
			return err
		}
		if err := writeFrom(ctx, filepath.Join(to, name), t); err != nil {
			return err
		}
	}
	// Read to the end, to verify that the file was not truncated.
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("the save has further files"), err)
	}
	if _, err := io.Copy(io.Discard, tarred); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, sealed)
	return err
}

// writeFrom writes a new file.
func writeFrom(ctx context.Context, name string, from io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 256<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := f.Write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return f.Close()
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}
