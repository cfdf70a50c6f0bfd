package image

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/brig-run/brig"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow is the largest window of a zstd archive that the decoder keeps in
// memory. It equals the default limit of the zstd command.
const zstdWindow = 128 << 20

// archiveError returns an InvalidArgument error for the field "archive".
func archiveError(format string, args ...any) *brig.Error {
	return brig.InvalidField("archive", format, args...)
}

// archive reads the tar stream inside an uploaded archive. It counts the bytes
// on both sides of the decompressor and hashes the decompressed stream.
type archive struct {
	in    io.Reader // as the client sent it
	out   io.Reader // the tar stream
	alive func() error

	taken, given int64
	sum          hash.Hash
	ended        bool  // the tar stream was read to its end
	inErr        error // an error of the sender or of the context
	limitErr     error // the limit that the archive exceeded

	max, ratio, floor int64
	closeOut          func()
}

// openArchive detects the compression of an archive and opens it.
func openArchive(ctx context.Context, in io.Reader, o *Options) (*archive, error) {
	a := &archive{
		in: in, alive: ctx.Err, sum: sha256.New(), closeOut: func() {},
		// The tar stream also holds headers and padding. They never take as many
		// bytes as the largest image.
		max: 2*o.MaxSize + 64<<20, ratio: o.MaxRatio, floor: o.ratioFloor,
	}
	buffered := bufio.NewReaderSize(compressedReader{a}, 128<<10)
	head, _ := buffered.Peek(6) // the next read returns the error again
	var err error
	switch h := string(head); {
	case strings.HasPrefix(h, "\x1f\x8b"):
		a.out, err = gzip.NewReader(buffered)
	case strings.HasPrefix(h, "\x28\xb5\x2f\xfd"):
		err = a.openZstd(buffered)
	case formatOf(h) != "":
		err = archiveError("%s is not supported", formatOf(h)).
			WithHint("send a tar archive, plain or compressed with zstd or gzip")
	default:
		a.out = buffered
	}
	if err != nil {
		return nil, a.explain(err)
	}
	return a, nil
}

func (a *archive) openZstd(r io.Reader) error {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(zstdWindow))
	if err != nil {
		return err
	}
	a.out, a.closeOut = d, d.Close
	return nil
}

// formatOf identifies a common unsupported format by its magic bytes.
func formatOf(head string) string {
	for _, f := range []struct{ magic, name string }{
		{"\xfd7zXZ\x00", "xz"}, {"BZh", "bzip2"}, {"PK\x03\x04", "zip"}, {"\x04\x22\x4d\x18", "lz4"},
		{"7z\xbc\xaf\x27\x1c", "7z"}, {"hsqs", "squashfs"}, {"!<arch>"[:6], "ar (a Debian package?)"},
		{"\x7fELF", "a program"}, {"\xed\xab\xee\xdb", "rpm"},
	} {
		if strings.HasPrefix(head, f.magic) {
			return f.name
		}
	}
	return ""
}

// compressedReader counts the compressed bytes that it reads from the archive.
type compressedReader struct{ *archive }

func (t compressedReader) Read(p []byte) (int, error) {
	if err := t.alive(); err != nil {
		t.inErr = err
		return 0, err
	}
	n, err := t.in.Read(p)
	t.taken += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		t.inErr = err
	}
	return n, err
}

// Read reads from the tar stream.
func (a *archive) Read(p []byte) (int, error) {
	if a.limitErr != nil {
		return 0, a.limitErr
	}
	n, err := a.out.Read(p)
	a.sum.Write(p[:n])
	a.given += int64(n)
	if lerr := a.checkLimits(a.given); lerr != nil {
		a.limitErr = lerr
		return 0, lerr
	}
	if errors.Is(err, io.EOF) {
		if n > 0 {
			// Return the end with the next read only, so that ended reports
			// whether the tar reader had to read past its last block.
			return n, nil
		}
		a.ended = true
	}
	return n, err
}

// checkLimits returns an error if n output bytes exceed the limits for the input read so far. A sparse
// file counts as its declared size.
func (a *archive) checkLimits(n int64) error {
	if n > a.max {
		return archiveError("it holds more than %d bytes of tar stream", a.max)
	}
	if n > a.floor && n/a.ratio > a.taken {
		return archiveError("it unpacks to more than %d times its own size, the limit", a.ratio)
	}
	return nil
}

// drain reads the bytes after the end mark, which may only be padding.
func (a *archive) drain() error {
	if a.ended {
		return archiveError("it ends before its end mark: it was cut short")
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := a.Read(buf)
		if strings.Trim(string(buf[:n]), "\x00") != "" {
			return archiveError("there is something behind its end mark")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return a.explain(err)
		}
	}
}

// digest returns the digest of the tar stream. drain must be called first.
func (a *archive) digest() string { return digestPrefix + hex.EncodeToString(a.sum.Sum(nil)) }

// explain distinguishes read errors that the caller caused from internal errors.
func (a *archive) explain(err error) error {
	switch {
	case a.inErr != nil:
		return fmt.Errorf("read archive: %w", a.inErr)
	case a.limitErr != nil:
		return a.limitErr
	case brig.KindOf(err) == brig.InvalidArgument:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return archiveError("it was cut short, or a size in it is a lie").Because(err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return archiveError("its zstd window is larger than %d MiB", zstdWindow>>20).Because(err)
	}
	return archiveError("it is damaged, or not a tar archive").Because(err).
		WithHint("send a tar archive of a root file system, plain or compressed with zstd or gzip")
}

// wrapEntryError adds the name of the rejected entry to an error of an archive.
func wrapEntryError(name string, err error) error {
	e := brig.AsError(err)
	if e.Kind != brig.InvalidArgument {
		return err
	}
	named := *e
	named.Message = fmt.Sprintf("entry %s: %s", quote(name), e.Message)
	return &named
}
