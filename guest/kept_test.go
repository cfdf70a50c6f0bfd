package guest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// A server that exits may leave a note without a process, but never a kept process without a note.
// The file names are those of earlier versions.
func TestNoteIsWrittenBeforeProcess(t *testing.T) {
	dir := t.TempDir()
	m := (&RemoteHost{}).newInstance(t.Context(), InstanceOptions{ID: "x", Dir: dir})
	file := filepath.Join(dir, "kept", "CLS32===") // base32 of "ex1", with the extended hex alphabet
	var noted []bool
	m.Guest.Dial = newTestGuest(t, func(call wire.Call, c net.Conn) {
		_, err := os.Stat(file)
		noted = append(noted, err == nil)
		switch call.Op {
		case wire.OpDetach:
			_ = wire.Write(c, wire.TypeOK, nil)
		case wire.OpReattach:
			_ = wire.WriteJSON(c, wire.TypeError, wire.Error{Kind: "not_found"})
		}
	}).Dial
	p := &CarriedProcess{program: program{id: "ex1"}}
	for _, note := range []string{"one", "two"} {
		if err := m.Keep(t.Context(), p, []byte(note)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); string(b) != note || err != nil {
			t.Errorf("the note is %q, %v, want %q", b, err, note)
		}
	}
	if err := os.WriteFile(file+".new", []byte("incomplete"), 0o600); err != nil {
		t.Fatal(err)
	}
	var ended []string
	kept, err := m.notebook().KeptProcesses(t.Context(), &m.Guest, func(id string) { ended = append(ended, id) })
	if len(kept) != 0 || err != nil || !slices.Equal(ended, []string{"ex1"}) {
		t.Errorf("kept are %v, %v; ended are %v", kept, err, ended)
	}
	for range 2 { // the second time there is no note
		if err := m.Keep(t.Context(), p, nil); err != nil {
			t.Error(err)
		}
	}
	if want := []bool{true, true, true, true, false}; !slices.Equal(noted, want) {
		t.Errorf("notes at the calls of the agent: %v, want %v", noted, want)
	}
	if err := m.Keep(t.Context(), brig.Process(nil), nil); err == nil {
		t.Error("another process is kept")
	}
}
