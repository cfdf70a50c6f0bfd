package screen

import "unicode/utf8"

// node is one node of a tree. Nodes are in the order of the source, parents
// before their children.
type node struct {
	start, end  uint32 // of its bytes
	next        int32  // the first node after it that is not in it
	parent      int32  // -1 for the root
	kind, field uint16
	wrong       bool // it is what the grammar does not know, or is missing
}

// tree is a source and its nodes.
type tree struct {
	source          []byte
	nodes           []node
	symbols, fields []string
	broken          bool // some of it is wrong
	open            []place
	lines           []int // where lines start; made when it is needed
}

// place is a node whose end has not come yet, and how deep it is.
type place struct {
	at    int32
	depth uint32
}

// add takes a node as the parser tells it.
func (t *tree) add(w [6]uint32) {
	n := node{kind: uint16(w[0]), field: uint16(w[1]), start: w[2], end: w[3], wrong: w[5] != 0, parent: -1}
	n.end = min(n.end, uint32(len(t.source)))
	n.start = min(n.start, n.end)
	t.broken = t.broken || n.wrong
	t.close(w[4])
	if len(t.open) > 0 {
		n.parent = t.open[len(t.open)-1].at
	}
	t.open = append(t.open, place{int32(len(t.nodes)), w[4]})
	t.nodes = append(t.nodes, n)
}

// close ends what is not above a depth.
func (t *tree) close(depth uint32) {
	for n := len(t.open); n > 0 && t.open[n-1].depth >= depth; n-- {
		t.nodes[t.open[n-1].at].next = int32(len(t.nodes))
		t.open = t.open[:n-1]
	}
}

func (t *tree) kind(i int32) string {
	if i < 0 || int(t.nodes[i].kind) >= len(t.symbols) {
		return "ERROR" // the parser gives it a number of its own
	}
	return t.symbols[t.nodes[i].kind]
}

// place is the name of a node's place in its parent, empty for most.
func (t *tree) place(i int32) string {
	if f := int(t.nodes[i].field); f < len(t.fields) {
		return t.fields[f]
	}
	return ""
}

func (t *tree) text(i int32) string {
	return string(t.source[t.nodes[i].start:t.nodes[i].end])
}

// child returns the first child at a place, -1 if there is none.
func (t *tree) child(i int32, place string) int32 {
	for c := range t.children(i) {
		if t.place(c) == place {
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

// named yields the children of a node that are no comments.
func (t *tree) named(i int32) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for c := range t.children(i) {
			if t.kind(c) != "comment" && !yield(c) {
				return
			}
		}
	}
}

// only returns the single child of a node, -1 if it has none or several.
func (t *tree) only(i int32) int32 {
	found := int32(-1)
	for c := range t.named(i) {
		if found >= 0 {
			return -1
		}
		found = c
	}
	return found
}

// ascend calls f for every node after its children, in the source's order,
// until it says that it is enough.
func (t *tree) ascend(f func(i int32) bool) {
	var open []int32
	for i := int32(0); int(i) < len(t.nodes); i++ {
		for len(open) > 0 && t.nodes[open[len(open)-1]].next <= i {
			if !f(open[len(open)-1]) {
				return
			}
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
	for n := len(open) - 1; n >= 0; n-- {
		if !f(open[n]) {
			return
		}
	}
}

// at is the line and column of a byte, both from 1.
func (t *tree) at(offset uint32) (line, column int) {
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
