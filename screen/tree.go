package screen

import "unicode/utf8"

// node is one node of a tree. The nodes of a tree are in source order, parents
// before their children.
type node struct {
	start, end  uint32 // byte offsets
	next        int32  // the first node after this one and its descendants
	parent      int32  // -1 for the root
	kind, field uint16
	invalid     bool // whether this is an error node or a missing node
}

// tree is the syntax tree of a source.
type tree struct {
	source          []byte
	nodes           []node
	symbols, fields []string
	broken          bool // whether the source contains a syntax error
	open            []openNode
	lines           []int // the offset of each line; computed on first use
}

// openNode is a node whose descendants are still being added, with its depth.
type openNode struct {
	at    int32
	depth uint32
}

// add appends a node from the parser.
func (t *tree) add(w [6]uint32) {
	n := node{kind: uint16(w[0]), field: uint16(w[1]), start: w[2], end: w[3], invalid: w[5] != 0, parent: -1}
	n.end = min(n.end, uint32(len(t.source)))
	n.start = min(n.start, n.end)
	t.broken = t.broken || n.invalid
	t.close(w[4])
	if len(t.open) > 0 {
		n.parent = t.open[len(t.open)-1].at
	}
	t.open = append(t.open, openNode{int32(len(t.nodes)), w[4]})
	t.nodes = append(t.nodes, n)
}

// close ends the nodes below a depth.
func (t *tree) close(depth uint32) {
	for n := len(t.open); n > 0 && t.open[n-1].depth >= depth; n-- {
		t.nodes[t.open[n-1].at].next = int32(len(t.nodes))
		t.open = t.open[:n-1]
	}
}

func (t *tree) kind(i int32) string {
	if i < 0 || int(t.nodes[i].kind) >= len(t.symbols) {
		return "ERROR" // the parser uses a special number for error nodes
	}
	return t.symbols[t.nodes[i].kind]
}

// fieldName returns the field name of a node in its parent, which is empty for
// most nodes.
func (t *tree) fieldName(i int32) string {
	if f := int(t.nodes[i].field); f < len(t.fields) {
		return t.fields[f]
	}
	return ""
}

func (t *tree) text(i int32) string {
	return string(t.source[t.nodes[i].start:t.nodes[i].end])
}

// child returns the first child with a field name, or -1 if there is none.
func (t *tree) child(i int32, name string) int32 {
	for c := range t.children(i) {
		if t.fieldName(c) == name {
			return c
		}
	}
	return -1
}

// children yields the children of a node.
func (t *tree) children(i int32) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		if i < 0 {
			return
		}
		for c := i + 1; c < t.nodes[i].next; c = t.nodes[c].next {
			if !yield(c) {
				return
			}
		}
	}
}

// namedChildren yields the children of a node except for comments.
func (t *tree) namedChildren(i int32) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for c := range t.children(i) {
			if t.kind(c) != "comment" && !yield(c) {
				return
			}
		}
	}
}

// onlyChild returns the only child of a node, or -1 if the node has no child or
// several.
func (t *tree) onlyChild(i int32) int32 {
	found := int32(-1)
	for c := range t.namedChildren(i) {
		if found >= 0 {
			return -1
		}
		found = c
	}
	return found
}

// walk calls f for every node after its children, in source order, until f
// returns false.
func (t *tree) walk(f func(i int32) bool) {
	var ancestors []int32
	for i := int32(0); int(i) < len(t.nodes); i++ {
		for len(ancestors) > 0 && t.nodes[ancestors[len(ancestors)-1]].next <= i {
			if !f(ancestors[len(ancestors)-1]) {
				return
			}
			ancestors = ancestors[:len(ancestors)-1]
		}
		ancestors = append(ancestors, i)
	}
	for n := len(ancestors) - 1; n >= 0; n-- {
		if !f(ancestors[n]) {
			return
		}
	}
}

// position returns the line and column of a byte offset, both counted from 1.
func (t *tree) position(offset uint32) (line, column int) {
	if t.lines == nil {
		t.lines = []int{0}
		for i, c := range t.source {
			if c == '\n' {
				t.lines = append(t.lines, i+1)
			}
		}
	}
	lo, hi := 0, len(t.lines)
	for hi-lo > 1 {
		if m := (lo + hi) / 2; t.lines[m] <= int(offset) {
			lo = m
		} else {
			hi = m
		}
	}
	return lo + 1, utf8.RuneCount(t.source[t.lines[lo]:offset]) + 1
}
