package builder

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/brig-run/brig"
)

// copyScript unpacks an archive and copies files from it. Its arguments are the directory of the step,
// the cleaned paths of the source and the destination, the owner, the mode, and the kind of copy: "tree"
// copies the contents of a directory into the destination, "into" copies the source itself into the
// destination, and "file" copies the source to the destination. The script sets the owner and the mode
// of the copied files only, and not of link targets or of a destination that exists.
const copyScript = `set -e
dir=$1 src=$2 dest=$3 owner=$4 mode=$5 kind=$6
mkdir "$dir/x"
tar -xf "$dir/archive" -C "$dir/x"
rm -f "$dir/archive"
cd "$dir/x"
if [ ! -e "$src" ] && [ ! -L "$src" ]; then echo "COPY: no file matches" >&2; exit 1; fi
if [ "$kind" != tree ] && [ -d "$src" ] && [ ! -L "$src" ]; then kind=tree; fi
depth=0
if [ "$kind" = tree ]; then depth=1; fi
find "$src" -mindepth $depth -exec chown -h -- "$owner" {} +
if [ -n "$mode" ]; then find "$src" -mindepth $depth ! -type l -exec chmod -- "$mode" {} +; fi
if [ "$kind" = file ] && [ -d "$dest" ]; then kind=into; fi
if [ "$kind" = file ]; then
  mkdir -p -- "$(dirname -- "$dest")"
  cp -a -- "$src" "$dest"
  exit 0
fi
if [ ! -d "$dest" ]; then mkdir -p -- "$dest"; chown -- "$owner" "$dest"; fi
if [ "$kind" = into ]; then
  cp -a -- "$src" "$dest/"
else
  find "$src" -mindepth 1 -maxdepth 1 -exec sh -c 'd=$1; shift; cp -a -- "$@" "$d/"' sh "$dest" {} +
fi
`

// copyFiles runs a COPY step: it unpacks the uploaded archive in the sandbox, and copies its files.
func (r *activeRun) copyFiles(ctx context.Context, s Step) error {
	src, kind := source(s.Args[0])
	if src == "" {
		return failf("COPY: %q is outside of the files of the build", brig.Clip(s.Args[0], 200))
	}
	dest, err := r.expand(ctx, s.Args[1])
	if err != nil {
		return err
	}
	if kind == "file" && strings.HasSuffix(dest, "/") {
		kind = "into"
	}
	if !path.IsAbs(dest) {
		dest = path.Join(r.state.dir, dest)
	}
	archive, err := r.b.uploads.open(brig.ActorFrom(ctx), s.Files)
	if err != nil {
		return err
	}
	defer archive.Close()
	content := &checkedReader{from: archive}
	if content.from, err = decompress(archive); err != nil {
		return failf("COPY: the uploaded files are not a tar archive")
	}
	dir := "/var/tmp/brig-copy-" + strings.ToLower(rand.Text())
	defer r.removeDir(ctx, dir)
	const mkdir = `mkdir -p /var/tmp && mkdir -m 700 -- "$1"`
	if err := r.asRoot(ctx, "mkdir "+dir, mkdir, dir); err != nil {
		return err
	}
	if _, err := r.b.options.Service.Files(r.box()).Write(ctx, brig.Path{Name: dir + "/archive", User: "root"}, brig.FileWrite{}, content); err != nil {
		if content.err != nil {
			return failf("COPY: the uploaded files are damaged")
		}
		return err
	}
	what := "COPY " + brig.Clip(s.Args[0], 200) + " " + brig.Clip(s.Args[1], 200)
	return r.asRoot(ctx, what, copyScript, dir, src, path.Clean(dest), r.ownerOf(s.arg(2)), s.arg(3), kind)
}

// ownerOf returns the owner of copied files for chown: by default the current user. A name without a
// group stands for the group of the account, and a number for the group of the same number.
func (r *activeRun) ownerOf(owner string) string {
	switch {
	case owner == "" || owner == "user" || owner == "user:user": // the account may have another name
		if owner != "" {
			return accountOf("user").owner()
		}
		return r.state.user.owner()
	case strings.Contains(owner, ":"):
		return owner
	case isNumber(owner):
		return owner + ":" + owner
	}
	return owner + ":"
}

// checkedReader keeps the first error of a reader, so that a damaged archive is distinguished from a
// failed write.
type checkedReader struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (c *checkedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// source returns the path in the archive that a COPY copies, relative and clean, and its kind. The
// archive has only the files that match the source's pattern, so for a pattern it is the directory
// before the first wildcard. The path is empty if the source is outside of the archive.
func source(src string) (clean, kind string) {
	kind = "file"
	if i := strings.IndexAny(src, "*?[{"); i >= 0 {
		src, kind = src[:strings.LastIndex(src[:i], "/")+1], "tree"
	}
	if path.IsAbs(src) {
		return "", ""
	}
	clean = path.Clean(src)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", ""
	}
	if clean == "." {
		kind = "tree"
	}
	return "./" + clean, kind
}

// decompress returns the content of an archive that may be compressed with gzip. The disk limit of
// the sandbox bounds the size of the content.
func decompress(archive io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(archive)
	magic, _ := buffered.Peek(2) // the next read returns its error
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// removeDir removes a temporary directory of the sandbox.
func (r *activeRun) removeDir(ctx context.Context, dir string) {
	if ctx.Err() != nil {
		return // the sandbox is about to be removed
	}
	if err := r.b.options.Service.Files(r.box()).Remove(ctx, brig.Path{Name: dir, User: "root"}); err != nil {
		r.b.options.Log.WarnContext(ctx, "failed to remove a temporary directory of a build", "build", r.build.ID, "err", err)
	}
}
