package engine

import (
	"bytes"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// values collects the displayed values of one run, within the limits.
type values struct {
	list    []brig.Rich
	size    int // total size of list
	omitted int // number of values that are not in list
}

// maxDisplayID limits the length of the ID of a display.
const maxDisplayID = 256

// add adds the value of a driver's message, and returns it. An update replaces the values of its
// display. Otherwise, the updates of a progress display would exhaust the limits.
func (v *values) add(m *interpreter.Message) brig.Rich {
	rich, size := richValue(m)
	if rich.Update && v.replace(rich, size) {
		return rich
	}
	if isWithinLimits(rich, len(v.list), v.size+size) {
		v.size += size
		v.list = append(v.list, rich)
	} else {
		v.omitted++
	}
	return rich
}

// replace replaces the values of a display. It returns false if the display has no values.
func (v *values) replace(by brig.Rich, size int) (found bool) {
	for i := range v.list {
		old := &v.list[i]
		if old.DisplayID != by.DisplayID {
			continue
		}
		found = true
		if total := v.size - sizeOf(*old) + size; total <= brig.MaxOutputSize {
			v.size = total
			old.Data, old.Metadata = by.Data, by.Metadata
		} else {
			v.omitted++
		}
	}
	return found
}

// richValue returns the value of a driver's message and its size.
func richValue(m *interpreter.Message) (rich brig.Rich, size int) {
	rich = brig.Rich{Data: m.Data, Main: m.Type == "result", Metadata: m.Metadata}
	if !rich.Main && len(m.DisplayID) <= maxDisplayID {
		rich.DisplayID, rich.Update = m.DisplayID, m.Update && m.DisplayID != ""
	}
	for k, form := range rich.Data {
		rich.Data[k] = bytes.Clone(form)
	}
	for k, form := range rich.Metadata {
		rich.Metadata[k] = bytes.Clone(form)
	}
	return rich, sizeOf(rich)
}

// sizeOf returns the size of a value.
func sizeOf(r brig.Rich) (size int) {
	for k, form := range r.Data {
		size += len(k) + len(form)
	}
	for k, form := range r.Metadata {
		size += len(k) + len(form)
	}
	return size
}
