package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// treeDigest returns the digest of a tree as a sandbox sees it: names, types,
// modes, owners, contents and bind mounts. It ignores times.
func treeDigest(root *os.Root, binds []Bind) (string, error) {
	h := sha256.New()
	for _, b := range binds {
		fmt.Fprintf(h, "bind %q %q\n", b.Source, b.Target)
	}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		var uid, gid uint32
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			uid, gid = st.Uid, st.Gid
		}
		fmt.Fprintf(h, "%q %s %d:%d ", name, fi.Mode(), uid, gid)
		switch fi.Mode().Type() {
		case fs.ModeSymlink:
			target, err := root.Readlink(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%q", target)
		case 0:
			f, err := root.Open(name)
			if err != nil {
				return err
			}
			n, err := io.Copy(h, f)
			_ = f.Close()
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%d", n)
		}
		fmt.Fprintln(h)
		return nil
	})
	return digestPrefix + hex.EncodeToString(h.Sum(nil)), err
}
