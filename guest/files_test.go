package guest

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

// Artifact names from a hostile agent cannot refer to other directories, and
// the list of skipped artifacts is limited.
func TestCollectRejectsHostileNames(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	names := []string{"good.png", "../../evil.png", "/etc/evil.csv", `..\..\evil.svg`, "evil.exe", ""}
	go func() {
		defer theirs.Close()
		if _, err := wire.NewReader(theirs).Read(); err != nil {
			return
		}
		for _, n := range names {
			if wire.WriteJSON(theirs, wire.TypeFile, wire.File{Path: n, Size: 1}) != nil || wire.Write(theirs, wire.TypeFileData, []byte("x")) != nil {
				return
			}
		}
		for range 200 {
			if wire.WriteJSON(theirs, wire.TypeFile, wire.File{Path: strings.Repeat("x", 1<<16), Size: -1}) != nil {
				return
			}
		}
		_ = wire.Write(theirs, wire.TypeOK, nil)
	}()
	g := Guest{Dial: func(context.Context) (net.Conn, error) { return ours, nil }}
	files, skipped, err := g.Collect(t.Context(), "/x")
	if err != nil || len(files) != 1 || files[0].Path != "good.png" || string(files[0].Data) != "x" {
		t.Errorf("%+v, %v", files, err)
	}
	if size := len(strings.Join(skipped, "")); len(skipped) != maxSkipped || size > 1<<16 {
		t.Errorf("%d are skipped, in %d bytes", len(skipped), size)
	}
}
