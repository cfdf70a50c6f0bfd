//go:build !shim

package gvisor

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/lisafs"
)

// TestTreeResponsesAreValidLISAFS verifies that gVisor's own client decodes the responses
// of a tree correctly.
func TestTreeResponsesAreValidLISAFS(t *testing.T) {
	_, root := createTree(t, false)
	req := lisafs.OpenAtReq{FD: rootID, Flags: unix.O_RDONLY}
	body := make([]byte, req.SizeBytes())
	req.MarshalBytes(body)
	answers, files := exchangeMessages(t, root, encodeMessage(uint16(lisafs.Mount), nil), encodeMessage(uint16(lisafs.OpenAt), body), openMessage(9, 0))
	if len(files) != 2 {
		t.Errorf("%d descriptors", len(files))
	}
	next := func(want lisafs.MID) []byte {
		size, kind := binary.NativeEndian.Uint32(answers), lisafs.MID(binary.NativeEndian.Uint16(answers[4:]))
		if kind != want {
			t.Fatalf("answer %d, want %d", kind, want)
		}
		body := answers[msgHeader : msgHeader+size]
		answers = answers[msgHeader+size:]
		return body
	}
	var mount lisafs.MountResp
	if rest, ok := mount.CheckedUnmarshal(next(lisafs.Mount)); !ok || len(rest) > 0 {
		t.Fatalf("the answer to a mount is not one: %v, %d left", ok, len(rest))
	}
	if mount.Root.ControlFD != rootID || mount.MaxMessageSize != msgMax || !slices.Equal(mount.SupportedMs, []lisafs.MID{lisafs.Mount, lisafs.OpenAt}) {
		t.Errorf("mounted: %v", &mount)
	}
	var opened lisafs.OpenAtResp
	if rest, ok := opened.CheckedUnmarshal(next(lisafs.OpenAt)); !ok || len(rest) > 0 || !opened.OpenFD.Ok() {
		t.Errorf("opened: %v, %v, %d left", &opened, ok, len(rest))
	}
	var refused lisafs.ErrorResp
	if body := next(lisafs.Error); len(body) != refused.SizeBytes() || unix.Errno(binary.NativeEndian.Uint32(body)) != unix.EROFS {
		t.Errorf("refused: % x", body)
	}
}
