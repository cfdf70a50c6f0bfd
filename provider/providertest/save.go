package providertest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// saver returns the provider as a Saver. If the provider does not support
// saves, saver skips the test, and checks that the provider does not claim
// them.
func (h Harness) saver(t *testing.T) brig.Saver {
	t.Helper()
	s, ok := h.Provider.(brig.Saver)
	if h.Provider.Capabilities().Saves {
		if !ok {
			t.Fatal("it claims to save, and is no Saver")
		}
		return s
	}
	if ok {
		_, in := create(t, h, nil)
		if err := s.CheckSave(t.Context(), in); brig.KindOf(err) != brig.Unimplemented {
			t.Errorf("without the capability CheckSave returns %v", err)
		}
	}
	t.Skip("the provider does not save instances")
	return nil
}

// saved saves an instance and removes the save when the test ends.
func saved(t *testing.T, s brig.Saver, in brig.Instance, id brig.SaveID, o brig.SaveOptions) *brig.Save {
	t.Helper()
	t.Cleanup(func() {
		if err := s.RemoveSave(context.WithoutCancel(t.Context()), id); err != nil {
			t.Errorf("remove the save: %v", err)
		}
	})
	save, err := s.Save(t.Context(), in, id, o)
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	return save
}

// restored restores an instance, and destroys it when the test ends.
func restored(t *testing.T, h Harness, s brig.Saver, from brig.SaveID, id brig.ID) brig.Instance {
	t.Helper()
	return restoredAs(t, h, s, from, id, h.spec().Name)
}

// restoredAs is like restored, for an instance with the given name.
func restoredAs(t *testing.T, h Harness, s brig.Saver, from brig.SaveID, id brig.ID, name string) brig.Instance {
	t.Helper()
	spec := h.spec()
	spec.Name = name
	in, err := s.Restore(t.Context(), from, id, spec, time.Now().Add(instanceLease))
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	t.Cleanup(func() { destroy(t, in) })
	return in
}

// writeNote writes a file that hasNote checks.
func writeNote(t *testing.T, in brig.Instance) {
	t.Helper()
	if err := in.Put(t.Context(), "/workspace", []brig.File{{Path: "note", Data: []byte("noted"), Mode: 0o644}}); err != nil {
		t.Fatal(err)
	}
}

func hasNote(t *testing.T, in brig.Instance) {
	t.Helper()
	if got := content(t, in.Files(), "/workspace/note", 0, -1); got != "noted" {
		t.Errorf("its file contains %q", got)
	}
}

// testSave checks that an instance ends with its save, and continues under its
// own ID after a restore.
func testSave(t *testing.T, h Harness) {
	s := h.saver(t)
	id, in := create(t, h, nil)
	writeNote(t, in)
	if err := s.CheckSave(t.Context(), in); err != nil {
		t.Fatalf("check: %v", err)
	}
	alive(t, in)
	save := saved(t, s, in, "save-1", brig.SaveOptions{})
	if e := ended(t, in); e.Reason != brig.Saved {
		t.Errorf("the saved machine ended with %+v", e)
	}
	if found, err := s.GetSave(t.Context(), "save-1"); err != nil || save.Bytes <= 0 || *found != *save {
		t.Errorf("the save is %+v and was %+v, %v", found, save, err)
	}
	next := restored(t, h, s, "save-1", id)
	alive(t, next)
	hasNote(t, next)
	hasNote(t, recovered(t, h, id, next))
	if err := s.RemoveSave(t.Context(), "save-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetSave(t.Context(), "save-1"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("a removed save: %v", err)
	}
	if _, err := s.Restore(t.Context(), "save-1", newID(), h.spec(), time.Now().Add(instanceLease)); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the restore of a removed save: %v", err)
	}
	hasNote(t, next)
}

// testSaveStays checks that an instance continues after a save with Stay, and that
// other instances can start from the save. Each of these has its own hostname and
// generation, and does not need the save once it is running.
func testSaveStays(t *testing.T, h Harness) {
	s := h.saver(t)
	_, in := create(t, h, nil)
	writeNote(t, in)
	saved(t, s, in, "save-2", brig.SaveOptions{Stay: true})
	alive(t, in)
	hasNote(t, in)
	names := []string{"copy-1", "copy-2"}
	var copies []brig.Instance
	for _, name := range names {
		copies = append(copies, restoredAs(t, h, s, "save-2", newID(), name))
	}
	if err := s.RemoveSave(t.Context(), "save-2"); err != nil {
		t.Fatal(err)
	}
	if h.Real {
		const identity = "hostname; cat /run/brig/generation"
		if a := run(t, in, script(identity)); a.ExitCode == 0 || a.out != h.spec().Name+"\n" {
			t.Errorf("the saved machine calls itself %q and has a generation", a.out)
		}
		seen := map[string]bool{}
		for i, copied := range copies {
			name, generation, _ := strings.Cut(run(t, copied, script(identity)).out, "\n")
			if name != names[i] || len(generation) < 20 || seen[generation] {
				t.Errorf("%s calls itself %q, of the generation %q", names[i], name, generation)
			}
			seen[generation] = true
		}
	}
	for _, copied := range copies {
		hasNote(t, copied)
		if err := copied.Put(t.Context(), "/workspace", []brig.File{{Path: "note", Data: []byte("another"), Mode: 0o644}}); err != nil {
			t.Fatal(err)
		}
		hasNote(t, in)
	}
}

// testSaveRefused checks that a running command prevents a save, and that
// neither the command nor the instance is affected. The control is the instance
// without the command.
func testSaveRefused(t *testing.T, h Harness) {
	s := h.saver(t)
	_, in := create(t, h, nil)
	type end struct {
		execResult
		err error
	}
	ends := make(chan end, 1)
	go func() {
		a, err := try(t.Context(), in, "refused", script("echo > /tmp/begun; sleep 2; echo unharmed"))
		ends <- end{a, err}
	}()
	for begin := time.Now(); time.Since(begin) < waitTimeout; time.Sleep(10 * time.Millisecond) {
		if run(t, in, script("test -e /tmp/begun")).ExitCode == 0 {
			break
		}
	}
	for _, err := range []error{s.CheckSave(t.Context(), in), func() error {
		_, err := s.Save(t.Context(), in, "save-3", brig.SaveOptions{})
		return err
	}()} {
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "process") {
			t.Errorf("with a command: %v", err)
		}
	}
	if _, err := s.GetSave(t.Context(), "save-3"); brig.KindOf(err) != brig.NotFound {
		t.Errorf("the refused save: %v", err)
	}
	alive(t, in)
	if e := <-ends; e.err != nil || e.out != "unharmed\n" {
		t.Errorf("the command ended with %+v, %v", e.execResult, e.err)
	}
	saved(t, s, in, "save-3", brig.SaveOptions{})
}

// testSaveDiffers checks that a restore with different limits fails, and that
// the save remains available. The control has the same limits.
func testSaveDiffers(t *testing.T, h Harness) {
	s := h.saver(t)
	_, in := create(t, h, nil)
	writeNote(t, in)
	saved(t, s, in, "save-4", brig.SaveOptions{})
	spec := h.spec()
	spec.Limits.Memory *= 2
	if _, err := s.Restore(t.Context(), "save-4", newID(), spec, time.Now().Add(instanceLease)); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("with other limits: %v", err)
	}
	hasNote(t, restored(t, h, s, "save-4", newID()))
}

// testSavePrograms checks that the programs of a pausable instance continue
// after a restore. A kept process is found with its note, and a finished
// execution is still known.
func testSavePrograms(t *testing.T, h Harness) {
	s := h.saver(t)
	id, in := create(t, h, func(s *brig.Spec) { s.Pausable = true })
	p := start(t, h, in)
	p.do(t, "x=before", "")
	if err := in.Keep(t.Context(), p.Process, []byte("a note")); err != nil {
		t.Fatal(err)
	}
	run(t, in, script("sleep 1000 > /dev/null 2>&1 & echo started"))
	p.Close()
	for i, save := range []brig.SaveID{"save-5", "save-6"} {
		saved(t, s, in, save, brig.SaveOptions{})
		in = restored(t, h, s, save, id)
		got := kept(t, in)
		if len(got) != 1 || string(got[p.id].Note) != "a note" {
			t.Fatalf("restore %d: kept are %.200v", i, got)
		}
		c := &lineProcess{got[p.id].Process, h.Real, p.id}
		if output := c.do(t, `echo "$x" >&3; echo out`, ""); !strings.Contains(strings.Join(output, "|"), "before") {
			t.Errorf("restore %d: the program printed %q", i, output)
		}
		if a := run(t, in, script("ps ax | grep -c '[s]leep 1000'")); a.out != "1\n" {
			t.Errorf("restore %d: %s programs run in the background", i, a.out)
		}
		c.Close()
	}
}

// testSavePacked checks that a packed save cannot be restored without its key,
// can be restored repeatedly with the key, and uses less space than before.
func testSavePacked(t *testing.T, h Harness) {
	s := h.saver(t)
	id, in := create(t, h, nil)
	writeNote(t, in)
	before := saved(t, s, in, "save-7", brig.SaveOptions{})
	key, wrongKey := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	if err := s.Unpack(t.Context(), "save-7", key); err != nil {
		t.Errorf("unpack of a save that is not packed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h.Real {
		if _, err := s.Pack(ctx, "save-7", key); err == nil {
			t.Error("a pack that was interrupted succeeds")
		}
		if found, err := s.GetSave(t.Context(), "save-7"); err != nil || *found != *before {
			t.Errorf("after an interrupted pack the save is %+v, %v", found, err)
		}
	}
	for i := range 2 {
		packed, err := s.Pack(t.Context(), "save-7", key)
		if err != nil {
			t.Fatalf("pack: %v", err)
		}
		if found, err := s.GetSave(t.Context(), "save-7"); err != nil || *found != *packed || !packed.Packed || packed.Bytes >= before.Bytes || !packed.At.Equal(before.At) {
			t.Errorf("the packed save is %+v and was %+v, %v", found, before, err)
		}
		if _, err := s.Restore(t.Context(), "save-7", newID(), h.spec(), time.Now().Add(instanceLease)); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("the restore of a packed save: %v", err)
		}
		if err := s.Unpack(t.Context(), "save-7", wrongKey); brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("unpack with another key: %v", err)
		}
		for range 2 {
			if err := s.Unpack(t.Context(), "save-7", key); err != nil {
				t.Fatalf("unpack: %v", err)
			}
		}
		if i == 0 {
			hasNote(t, restored(t, h, s, "save-7", newID()))
		}
	}
	next := restored(t, h, s, "save-7", id)
	if err := s.RemoveSave(t.Context(), "save-7"); err != nil {
		t.Fatal(err)
	}
	hasNote(t, next)
	for _, err := range []error{s.Unpack(t.Context(), "save-7", key), func() error { _, err := s.Pack(t.Context(), "save-7", key); return err }()} {
		if brig.KindOf(err) != brig.NotFound {
			t.Errorf("a save that does not exist: %v", err)
		}
	}
}

// testSaveFiles checks that a save without memory is possible while programs run, and
// that a restore boots an instance with the files, even with other limits and under
// another ID. Each restored instance has the files of the save, but none of the
// programs.
func testSaveFiles(t *testing.T, h Harness) {
	s := h.saver(t)
	id, in := create(t, h, nil)
	writeNote(t, in)
	p := start(t, h, in)
	p.do(t, "x=before", "")
	if err := in.Keep(t.Context(), p.Process, []byte("a note")); err != nil {
		t.Fatal(err)
	}
	if h.Real {
		run(t, in, script("echo > /tmp/lost; sleep 1000 > /dev/null 2>&1 & echo started"))
	}
	stayed := saved(t, s, in, "save-8", brig.SaveOptions{FilesOnly: true, Stay: true})
	p.do(t, `echo "$x" >&3; echo out`, "")
	p.Close()
	save := saved(t, s, in, "save-9", brig.SaveOptions{FilesOnly: true})
	if e := ended(t, in); e.Reason != brig.Saved {
		t.Errorf("the saved machine ended with %+v", e)
	}
	if found, err := s.GetSave(t.Context(), "save-9"); err != nil || !save.FilesOnly || !stayed.FilesOnly || *found != *save {
		t.Errorf("the save is %+v and was %+v, %v", found, save, err)
	}
	spec := h.spec()
	spec.Limits.Memory *= 2
	other, err := s.Restore(t.Context(), "save-8", newID(), spec, time.Now().Add(instanceLease))
	if err != nil {
		t.Fatalf("with other limits: %v", err)
	}
	t.Cleanup(func() { destroy(t, other) })
	for name, next := range map[string]brig.Instance{"the copy": other, "the machine": restored(t, h, s, "save-9", id)} {
		alive(t, next)
		hasNote(t, next)
		if got := kept(t, next); len(got) != 0 {
			t.Errorf("%s keeps %.200v", name, got)
		}
		if h.Real {
			if a := run(t, next, script("ls /tmp; ps ax | grep -c '[s]leep 1000'")); a.out != "0\n" {
				t.Errorf("%s has in memory: %q", name, a.out)
			}
		}
	}
}
