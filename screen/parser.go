package screen

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// Limits on checks.
const (
	maxSource     = 4 << 20         // bytes
	maxPages      = 512 << 20 >> 16 // WebAssembly memory, in pages of 64 KiB
	maxNodes      = 4 << 20         // nodes of a tree
	checkTimeout  = 5 * time.Second // default of Screener.Timeout
	maxConcurrent = 2               // concurrent checks
)

// ErrTooLarge means that a source exceeds the limits of screening.
var ErrTooLarge = errors.New("the source is too large, too deeply nested or too tangled to be screened")

//go:embed grammar/parser.wasm.gz
var parserFile []byte

// grammarID is the number of a language in the parser.
type grammarID int

const (
	python grammarID = iota
	javascript
	grammarCount
)

// parser is the compiled parser. It is compiled on first use.
type parser struct {
	once    sync.Once
	err     error
	runtime wazero.Runtime
	module  wazero.CompiledModule
	busy    chan struct{}          // one entry per running check
	symbols [grammarCount][]string // names of node kinds
	fields  [grammarCount][]string // field names of nodes in their parents
}

// prepare compiles the parser on the first call, which takes a third of a second.
func (p *parser) prepare(ctx context.Context) error {
	p.once.Do(func() {
		// The first caller may disconnect, but other callers still need the parser.
		if p.err = p.compile(context.WithoutCancel(ctx)); p.err != nil {
			p.err = fmt.Errorf("compile the parser: %w", p.err)
		}
	})
	return p.err
}

func (p *parser) compile(ctx context.Context) error {
	z, err := gzip.NewReader(bytes.NewReader(parserFile))
	if err != nil {
		return err
	}
	wasm, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	p.busy = make(chan struct{}, maxConcurrent)
	p.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(maxPages).WithCloseOnContextDone(true))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, p.runtime); err != nil {
		return err
	}
	if p.module, err = p.runtime.CompileModule(ctx, wasm); err != nil {
		return err
	}
	c, err := p.newInstance(ctx)
	if err != nil {
		return err
	}
	defer c.close(ctx)
	for l := range grammarCount {
		if p.symbols[l], err = c.readNames(ctx, l, "symbols", "symbol"); err != nil {
			return err
		}
		if p.fields[l], err = c.readNames(ctx, l, "fields", "field"); err != nil {
			return err
		}
	}
	return nil
}

// acquire waits until a slot for a check is free. The returned function releases
// the slot.
func (p *parser) acquire(ctx context.Context) (release func(), err error) {
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	select {
	case p.busy <- struct{}{}:
		return func() { <-p.busy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// parse returns the tree of a source. If the parser crashes or exceeds its memory
// or time, parse returns an error, because the content of the source is then
// unknown.
func (p *parser) parse(ctx context.Context, l grammarID, source []byte) (*tree, error) {
	c, err := p.newInstance(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the parser: %w", err)
	}
	defer c.close(context.WithoutCancel(ctx))
	t, err := c.parseTree(ctx, l, source)
	if err != nil {
		return nil, err
	}
	t.symbols, t.fields = p.symbols[l], p.fields[l]
	return t, nil
}

// instance is one instantiation of the parser, with separate memory.
type instance struct{ m api.Module }

func (p *parser) newInstance(ctx context.Context) (instance, error) {
	m, err := p.runtime.InstantiateModule(ctx, p.module, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	return instance{m}, err
}

func (c instance) close(ctx context.Context) { _ = c.m.Close(ctx) }

func (c instance) call(ctx context.Context, name string, args ...uint64) (uint32, error) {
	out, err := c.m.ExportedFunction(name).Call(ctx, args...)
	if err != nil {
		return 0, err
	}
	return api.DecodeU32(out[0]), nil
}

// readNames reads a table of names from the parser.
func (c instance) readNames(ctx context.Context, l grammarID, count, lookup string) ([]string, error) {
	n, err := c.call(ctx, count, uint64(l))
	if err != nil {
		return nil, err
	}
	out := make([]string, n)
	for i := range out {
		addr, err := c.call(ctx, lookup, uint64(l), uint64(i))
		if err != nil {
			return nil, err
		}
		if addr == 0 {
			continue
		}
		for ; ; addr++ {
			b, ok := c.m.Memory().ReadByte(addr)
			if !ok || b == 0 {
				break
			}
			out[i] += string(rune(b))
		}
	}
	return out, nil
}

var errParser = errors.New("the parser failed")

// parseTree parses a source, and reads the resulting tree in batches of nodes.
func (c instance) parseTree(ctx context.Context, l grammarID, source []byte) (*tree, error) {
	addr, err := c.call(ctx, "allocate", uint64(len(source)+1))
	if err != nil {
		return nil, err
	}
	if addr == 0 || !c.m.Memory().Write(addr, source) {
		return nil, errParser
	}
	if ok, err := c.call(ctx, "parse", uint64(l), uint64(addr), uint64(len(source))); err != nil || ok == 0 {
		return nil, errors.Join(errParser, err)
	}
	const batchSize, size = 4096, 6 * 4
	to, err := c.call(ctx, "allocate", batchSize*size)
	if err != nil || to == 0 {
		return nil, errors.Join(errParser, err)
	}
	t := &tree{source: source}
	for {
		n, err := c.call(ctx, "nodes", uint64(to), batchSize)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			t.close(0)
			return t, nil
		}
		b, ok := c.m.Memory().Read(to, n*size)
		if !ok || n > batchSize || len(t.nodes)+int(n) > maxNodes {
			return nil, errParser
		}
		for ; len(b) > 0; b = b[size:] {
			var w [6]uint32
			for i := range w {
				w[i] = binary.LittleEndian.Uint32(b[4*i:])
			}
			t.add(w)
		}
	}
}
