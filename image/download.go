package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brig-run/brig"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// concurrentDownloads is the number of layers that are fetched concurrently.
const concurrentDownloads = 3

// fetch writes one blob to out. It restarts from the beginning when the
// connection breaks. The written content has the digest and the size of d.
func (r *registry) fetch(ctx context.Context, what string, d v1.Descriptor, out blobWriter, report func(int64)) error {
	return r.retry(ctx, func() error {
		if err := out.reset(); err != nil {
			return err
		}
		return r.fetchOnce(ctx, what, d, out, report)
	})
}

// blobWriter is a writer that can be reset.
type blobWriter interface {
	io.Writer
	reset() error
}

func (r *registry) fetchOnce(ctx context.Context, what string, d v1.Descriptor, out io.Writer, report func(int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Give up on a registry whose transfer stalls.
	quiet := time.AfterFunc(r.stall, func() { cancel(errTruncated) })
	defer quiet.Stop()
	l, err := r.puller.Layer(ctx, r.repo.Digest(d.Digest.String()))
	if err != nil {
		return err
	}
	body, err := l.Compressed()
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	sum, buf, n, next := sha256.New(), make([]byte, 128<<10), int64(0), int64(slowest)
	for {
		m, rerr := body.Read(buf)
		if n += int64(m); n >= next {
			quiet.Reset(r.stall)
			next = n + slowest
		}
		if n > d.Size {
			return archiveError("%s is larger than its manifest says, %d bytes", what, d.Size)
		}
		sum.Write(buf[:m])
		if _, err := out.Write(buf[:m]); err != nil {
			return err
		}
		report(n)
		if errors.Is(rerr, io.EOF) {
			break
		}
		if rerr != nil && n < d.Size {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w: %w", errTruncated, rerr)
		}
		if rerr != nil {
			break // the library check failed; the digest check below reports it
		}
	}
	if n < d.Size {
		return errTruncated
	}
	if got := digestPrefix + hex.EncodeToString(sum.Sum(nil)); got != d.Digest.String() {
		return &wrongContent{what, d.Digest.String(), got}
	}
	return nil
}

// memory is a small blob in memory.
type memory struct{ b []byte }

func (m *memory) reset() error { m.b = nil; return nil }

// Write implements io.Writer.
func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b, p...)
	return len(p), nil
}

// blobFile is a blob on the disk.
type blobFile struct{ *os.File }

func (f blobFile) reset() error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// downloads fetches the layers of an image into the scratch directory, in order
// and a few at a time. Each layer can be opened once, after it was fetched.
type downloads struct {
	r      *registry
	dir    string
	report func(brig.Progress)
	slots  chan struct{}
	work   sync.WaitGroup
}

// start starts to fetch the layers. A caller that cancels ctx then waits for
// the running fetches.
func (d *downloads) start(ctx context.Context, all []v1.Descriptor) []layer {
	layers := make([]layer, len(all))
	before := make(chan struct{})
	close(before)
	for i, desc := range all {
		turn, next, done := before, make(chan struct{}), make(chan error, 1)
		before = next
		path := filepath.Join(d.dir, fmt.Sprintf("layer-%d", i))
		d.work.Go(func() {
			<-turn
			select {
			case d.slots <- struct{}{}:
				close(next)
				done <- d.downloadBlob(ctx, i, len(all), desc, path)
			case <-ctx.Done():
				close(next)
				done <- ctx.Err()
			}
		})
		layers[i] = layer{digest: desc.Digest.String(), open: func(context.Context) (io.ReadCloser, error) {
			if err := <-done; err != nil {
				return nil, err
			}
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			_ = os.Remove(path) // the kernel frees the space when the file is closed
			return &slotFile{f, d.slots}, nil
		}}
	}
	return layers
}

// slotFile allows the next layer to be fetched when it is closed.
type slotFile struct {
	*os.File
	slots chan struct{}
}

// Close implements io.Closer.
func (f *slotFile) Close() error {
	<-f.slots
	return f.File.Close()
}

func (d *downloads) downloadBlob(ctx context.Context, i, of int, desc v1.Descriptor, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const step = 1 << 20
	what, next := fmt.Sprintf("layer %d of %d", i+1, of), int64(0)
	return d.r.fetch(ctx, what, desc, blobFile{f}, func(n int64) {
		if n >= next || n == desc.Size {
			next = n + step
			d.report(brig.Progress{Step: "fetch " + what, Done: n, Total: desc.Size})
		}
	})
}
