// Package prefilter provides gVisor with precompiled seccomp programs for its
// own processes. Compiling them takes longer than any other step in the start
// of a sandbox. gVisor's release builds include them, but its Go module does
// not.
//
// gVisor's own compiler generates the programs from gVisor's own rules. They
// are stored in a file that a test generates and checks. A program is used only
// with the same gVisor version, architecture and options. In every other case
// gVisor compiles its rules as usual.
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

// gVisor looks up its programs in these maps, and fills them in release builds.
//
//go:linkname sentryPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var sentryPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

//go:embed programs_amd64.bin
var programs []byte

// Types of processes that have programs.
const (
	kindSentry = "sentry"
	kindGofer  = "gofer"
)

// Install installs the programs for the gVisor processes that this process starts.
func Install() {
	if runtime.GOARCH != "amd64" {
		return
	}
	all, err := decode(programs)
	if err != nil || all.version != version() {
		return
	}
	copyPrograms(all)
}

// copyPrograms copies the programs into gVisor's maps. gVisor creates the maps in its
// first lookup.
func copyPrograms(s set) {
	sentry.GetPrecompiled("")
	gofer.GetPrecompiled("")
	maps.Copy(sentryPrograms, s.kinds[kindSentry])
	maps.Copy(goferPrograms, s.kinds[kindGofer])
}

// version returns the version of gVisor in this binary, or "" if it is unknown.
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

// set is the decoded content of the file.
type set struct {
	version string
	kinds   map[string]map[string]precompiledseccomp.Program
}

// encode is the inverse of decode.
func (s set) encode() []byte {
	var w writer
	w.writeText(s.version)
	w.writeUvarint(len(s.kinds))
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		w.writeText(kind)
		w.writeUvarint(len(s.kinds[kind]))
		for _, key := range slices.Sorted(maps.Keys(s.kinds[kind])) {
			p := s.kinds[kind][key]
			w.writeText(key)
			w.writeUvarint(len(p.Bytecode32))
			for _, word := range p.Bytecode32 {
				w = binary.LittleEndian.AppendUint32(w, word)
			}
			w.writeUvarint(len(p.VarOffsets))
			for _, name := range slices.Sorted(maps.Keys(p.VarOffsets)) {
				w.writeText(name)
				w.writeUvarint(len(p.VarOffsets[name]))
				for _, o := range p.VarOffsets[name] {
					w.writeUvarint(o)
				}
			}
		}
	}
	return w
}

func decode(b []byte) (set, error) {
	r := reader{b: b}
	s := set{version: r.readText(), kinds: map[string]map[string]precompiledseccomp.Program{}}
	for range r.readUvarint() {
		kind := map[string]precompiledseccomp.Program{}
		s.kinds[r.readText()] = kind
		for range r.readUvarint() {
			p := precompiledseccomp.Program{Name: r.readText()}
			p.Bytecode32 = make([]uint32, r.readUvarint())
			for i := range p.Bytecode32 {
				p.Bytecode32[i] = r.readUint32()
			}
			vars := r.readUvarint()
			p.VarOffsets = make(map[string][]int, vars)
			for range vars {
				name := r.readText()
				offsets := make([]int, r.readUvarint())
				for i := range offsets {
					offsets[i] = r.readUvarint()
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

func (w *writer) writeUvarint(n int) { *w = binary.AppendUvarint(*w, uint64(n)) }
func (w *writer) writeText(s string) { w.writeUvarint(len(s)); *w = append(*w, s...) }

// reader decodes data from a writer. It returns zero values past the end.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) readUvarint() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<16 { // a program has at most 4096 instructions
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

func (r *reader) readText() string { return string(r.take(r.readUvarint())) }

func (r *reader) readUint32() uint32 {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}
