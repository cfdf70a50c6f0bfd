package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// volumeModel is what a test expects in a directory of a volume: the content of each file, and nil for
// each directory. Hard links have one content.
type volumeModel map[string]*[]byte

// volumeOp is one operation for modelRunner: a name, paths, and numbers.
type volumeOp []any

// modelRunner runs operations in the volume of a sandbox, and prints an error for each result that
// differs from the expected one.
const modelRunner = `
import os, sys, json, hashlib
os.chdir('/volume')
for op in json.load(sys.stdin):
  try:
    n = op[0]
    if n == 'write':
      f = os.open(op[1], os.O_RDWR|os.O_CREAT, 0o666)
      os.pwrite(f, bytes([op[3]])*op[4], op[2]); os.close(f)
    elif n == 'append':
      f = os.open(op[1], os.O_WRONLY|os.O_APPEND)
      os.write(f, bytes([op[2]])*op[3]); os.close(f)
    elif n == 'truncate': os.truncate(op[1], op[2])
    elif n == 'rename': os.rename(op[1], op[2])
    elif n == 'link': os.link(op[1], op[2])
    elif n == 'unlink': os.unlink(op[1])
    elif n == 'mkdir': os.mkdir(op[1])
    elif n == 'read':
      b = open(op[1],'rb').read()
      if len(b) != op[2] or hashlib.sha256(b).hexdigest() != op[3]: print('content', op, len(b))
      if os.stat(op[1]).st_size != op[2]: print('size', op, os.stat(op[1]).st_size)
    elif n == 'list':
      l = sorted(os.listdir(op[1]))
      if l != op[2]: print('names', op, l)
  except OSError as e: print(op, e)
`

// files lists the files of a model in a fixed order.
func (m volumeModel) files() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] != nil {
			out = append(out, name)
		}
	}
	return out
}

// dirs lists the directories of a model in a fixed order.
func (m volumeModel) dirs() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] == nil {
			out = append(out, name)
		}
	}
	return out
}

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// step returns a random operation on the model, and applies it.
func (m volumeModel) step(r *rand.Rand, n int) volumeOp {
	files, dirs := m.files(), m.dirs()
	fresh := dirs[r.IntN(len(dirs))] + fmt.Sprintf("/n%d", n)
	if len(files) == 0 {
		return m.write(fresh, r)
	}
	name := files[r.IntN(len(files))]
	content := m[name]
	switch r.IntN(12) {
	case 0, 1:
		return m.write(fresh, r)
	case 2, 3:
		return m.write(name, r)
	case 4:
		b, size := byte(r.IntN(256)), r.IntN(20_000)
		*content = append(*content, bytes.Repeat([]byte{b}, size)...)
		return volumeOp{"append", name, b, size}
	case 5:
		size := r.IntN(80_000)
		*content = append((*content)[:min(len(*content), size):min(len(*content), size)], make([]byte, max(0, size-len(*content)))...)
		return volumeOp{"truncate", name, size}
	case 6:
		to := fresh
		if r.IntN(2) == 0 {
			to = files[r.IntN(len(files))]
		}
		if to != name && m[to] != content { // a rename to a link of the same file does nothing
			m[to] = content
			delete(m, name)
		}
		return volumeOp{"rename", name, to}
	case 7:
		m[fresh] = content
		return volumeOp{"link", name, fresh}
	case 8:
		delete(m, name)
		return volumeOp{"unlink", name}
	case 9:
		if len(dirs) > 6 {
			from := dirs[1+r.IntN(len(dirs)-1)]
			to := dirs[0] + fmt.Sprintf("/d%d", n)
			for old, content := range maps.Clone(m) {
				if old == from || strings.HasPrefix(old, from+"/") {
					delete(m, old)
					m[to+strings.TrimPrefix(old, from)] = content
				}
			}
			return volumeOp{"rename", from, to}
		}
		m[fresh] = nil
		return volumeOp{"mkdir", fresh}
	case 10:
		dir := dirs[r.IntN(len(dirs))]
		names := []string{}
		for other := range m {
			if rest, ok := strings.CutPrefix(other, dir+"/"); ok && !strings.Contains(rest, "/") {
				names = append(names, rest)
			}
		}
		slices.Sort(names)
		return volumeOp{"list", dir, names}
	default:
		return volumeOp{"read", name, len(*content), sum(*content)}
	}
}

func (m volumeModel) write(name string, r *rand.Rand) volumeOp {
	b, size, offset := byte(r.IntN(256)), 1+r.IntN(30_000), r.IntN(40_000)
	if m[name] == nil {
		m[name] = new([]byte)
	}
	content := m[name]
	*content = append(*content, make([]byte, max(0, offset+size-len(*content)))...)
	copy((*content)[offset:], bytes.Repeat([]byte{b}, size))
	return volumeOp{"write", name, offset, b, size}
}

// reads returns operations that compare everything in the model.
func (m volumeModel) reads() []volumeOp {
	out := []volumeOp{}
	for _, name := range m.files() {
		out = append(out, volumeOp{"read", name, len(*m[name]), sum(*m[name])})
	}
	return out
}

// TestVolumeMatchesModel lets four sandboxes do random operations in one volume at the same time, each
// in a directory of its own, and in turns in a shared one. All sandboxes and the API must see exactly
// what a model of the operations has, and the file system must be clean.
//
//suite:part core
func TestVolumeMatchesModel(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	id := newVolumeImage(t, dir)
	p, images := newProvider(t, dir)
	const workers = 4
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var machines []*machine
	var models []volumeModel
	for i := range workers {
		machines = append(machines, newMachine(t, p, images, brig.ID(fmt.Sprintf("model-%d", i)), func(s *brig.Spec) {
			s.Volumes = []brig.VolumeMount{{Name: "shared", ID: id, Path: "/volume"}}
		}))
		models = append(models, volumeModel{fmt.Sprintf("w%d", i): nil})
	}
	machines[0].sh("user", "mkdir /volume/turns /volume/w0 /volume/w1 /volume/w2 /volume/w3")
	shared, counter := volumeModel{"turns": nil}, 0
	run := func(i int, ops []volumeOp) {
		in, err := json.Marshal(ops)
		if err != nil {
			t.Error(err)
		}
		var out, errs bytes.Buffer
		res, err := machines[i].Exec(t.Context(), fmt.Sprintf("model-%d-%d", i, time.Now().UnixNano()), brig.Command{Argv: []string{"python3", "-c", modelRunner}, User: "user", Timeout: time.Minute},
			brig.IO{Stdin: bytes.NewReader(in), Stdout: &out, Stderr: &errs})
		if err != nil || res.ExitCode != 0 || out.Len() > 0 {
			t.Errorf("sandbox %d: %+v, %v: %.2000s %s", i, res, err, out.String(), errs.String())
		}
	}
	rounds := testenv.Size(6, 150)
	for round := 0; round < rounds && !t.Failed(); round++ {
		run((round+2)%workers, shared.reads()) // what another sandbox wrote in the round before
		var all sync.WaitGroup
		for i := range workers {
			r := rand.New(rand.NewPCG(seed, uint64(round*workers+i)))
			var ops []volumeOp
			for n := range 60 {
				ops = append(ops, models[i].step(r, round*1000+n))
				if i == round%workers {
					counter++
					ops = append(ops, shared.step(r, counter))
				}
			}
			all.Go(func() { run(i, ops) })
		}
		all.Wait()
	}

	want := volumeModel{}
	for _, m := range append(models, shared) {
		maps.Copy(want, m)
	}
	var everything []volumeOp
	everything = append(everything, want.reads()...)
	for i := range workers {
		run(i, everything)
	}
	checkVolumeModel(t, dir, id, want)
	for _, m := range machines {
		if err := m.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantNoLoops(t, dir)
	checkImage(t, dir, id)
}

// checkVolumeModel compares a volume with a model, through the host's access to the files.
func checkVolumeModel(t *testing.T, dir, id string, want volumeModel) {
	t.Helper()
	s := volumesOf(t, dir)
	defer s.Close()
	files, release, err := s.Files(id)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	list, err := files.List(t.Context(), "/", 256)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(want) {
		t.Errorf("the API lists %d entries, want %d", len(list), len(want))
	}
	for _, e := range list {
		content, ok := want[strings.TrimPrefix(e.Path, "/")]
		if !ok || (content == nil) != (e.Type == brig.Directory) {
			t.Errorf("the API lists %s as %s", e.Path, e.Type)
		}
		if content == nil {
			continue
		}
		_, r, err := files.Read(t.Context(), e.Path)
		if err != nil {
			t.Errorf("read %s: %v", e.Path, err)
			continue
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(b, *content) {
			t.Errorf("the API reads %d bytes of %s, want %d: %v", len(b), e.Path, len(*content), err)
		}
	}
	t.Logf("%d entries", len(list))
}

// checkImage checks the file system of a volume that is not mounted.
func checkImage(t *testing.T, dir, id string) {
	t.Helper()
	b, err := exec.Command("e2fsck", "-fn", volumesOf(t, dir).Image(id)).CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("e2fsck: %v: %s", err, b)
	}
}
