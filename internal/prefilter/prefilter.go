// Package prefilter hands gVisor the seccomp programs of its own processes
// ready compiled. Compiling them takes longer than anything else in the start
// of a sandbox; gVisor's release builds carry them, its Go module does not.
//
// The programs are what gVisor itself compiles from its own rules, kept in a
// file (see the test that writes and checks it). A program is used only for
// the very version of gVisor, the architecture and the options that it was
// compiled for. In every other case gVisor compiles its rules as ever.
package prefilter

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentry "gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// gVisor looks its programs up in these, and fills them in release builds.
//
//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var sentryPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

//go:embed programs_amd64.bin
var programs []byte

// A kind says whose program it is.
const (
	kindSentry = "sentry"
	kindGofer  = "gofer"
)

// Use makes gVisor's processes that start in this one use the programs.
func Use() {
	if runtime.GOARCH != "amd64" {
		return
	}
	all, err := decode(programs)
	if err != nil || all.version != version() {
		return
	}
	fill(all)
}

// fill gives gVisor the programs. Its first look-up makes the maps.
func fill(s set) {
	sentry.GetPrecompiled("")
	gofer.GetPrecompiled("")
	maps.Copy(sentryPrograms, s.kinds[kindSentry])
	maps.Copy(goferPrograms, s.kinds[kindGofer])
}

// version is that of the gVisor in this binary, "" if it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" && m.Replace == nil {
			return m.Version
		}
	}
	return ""
}

// set is what the file holds.
type set struct {
	version string
	kinds   map[string]map[string]precompiledseccomp.Program
}

// encode is the inverse of decode.
func (s set) encode() []byte {
	var w writer
	w.text(s.version)
	w.number(len(s.kinds))
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		w.text(kind)
		w.number(len(s.kinds[kind]))
		for _, key := range slices.Sorted(maps.Keys(s.kinds[kind])) {
			p := s.kinds[kind][key]
			w.text(key)
			w.number(len(p.Bytecode32))
			for _, word := range p.Bytecode32 {
				w = binary.LittleEndian.AppendUint32(w, word)
			}
			w.number(len(p.VarOffsets))
			for _, name := range slices.Sorted(maps.Keys(p.VarOffsets)) {
				w.text(name)
				w.number(len(p.VarOffsets[name]))
				for _, o := range p.VarOffsets[name] {
					w.number(o)
				}
			}
		}
	}
	return w
}

func decode(b []byte) (set, error) {
	r := reader{b: b}
	s := set{version: r.text(), kinds: map[string]map[string]precompiledseccomp.Program{}}
	for range r.number() {
		kind := map[string]precompiledseccomp.Program{}
		s.kinds[r.text()] = kind
		for range r.number() {
			p := precompiledseccomp.Program{Name: r.text()}
			p.Bytecode32 = make([]uint32, r.number())
			for i := range p.Bytecode32 {
				p.Bytecode32[i] = r.word()
			}
			vars := r.number()
			p.VarOffsets = make(map[string][]int, vars)
			for range vars {
				name := r.text()
				offsets := make([]int, r.number())
				for i := range offsets {
					offsets[i] = r.number()
				}
				p.VarOffsets[name] = offsets
			}
			kind[p.Name] = p
		}
	}
	if r.short || len(r.b) > 0 {
		return set{}, errors.New("the file of seccomp programs is damaged")
	}
	return s, nil
}

type writer []byte

func (w *writer) number(n int)  { *w = binary.AppendUvarint(*w, uint64(n)) }
func (w *writer) text(s string) { w.number(len(s)); *w = append(*w, s...) }

// reader reads what a writer wrote; of what is not there, nothing.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) number() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<16 { // a program has 4096 instructions at most
		r.short, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) text() string { return string(r.take(r.number())) }

func (r *reader) word() uint32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}
