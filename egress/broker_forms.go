package egress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"unicode/utf16"
)

// scrubber removes values from responses. It finds them as they are and in the encodings that
// servers commonly use (see view). It cannot find every encoding: a host may return a value
// encrypted, compressed or reversed. Therefore only trusted hosts receive values.
type scrubber struct {
	values *search
	names  *search // in lower case, because field names are sent without their case
}

// maxBasicPairs limits how many basic credentials of a request are searched for
// as a whole: the guest chooses their lengths, and each length takes a separate
// search. Values within further credentials are still found.
const maxBasicPairs = 4

func newScrubber(grants []boundSecret, pairs []swap) *scrubber {
	var list []pattern
	for _, g := range grants {
		list = append(list, encodedForms(g, false)...)
	}
	var lower []pattern
	for _, g := range grants {
		lower = append(lower, encodedForms(g, true)...)
	}
	return (&scrubber{values: newSearch(list, false), names: newSearch(lower, true)}).withCredentials(pairs)
}

// withCredentials returns a scrubber that also finds basic credentials.
func (s *scrubber) withCredentials(pairs []swap) *scrubber {
	if len(pairs) == 0 {
		return s
	}
	var list []pattern
	for _, p := range pairs[:min(len(pairs), maxBasicPairs)] {
		list = append(list, pattern{view: asWritten, text: p.old, with: p.new, name: p.name})
	}
	return &scrubber{values: s.values.withPatterns(list), names: s.names}
}

// encodedForms returns the encoded forms of a value, each with the encoded placeholder. Each form
// covers the whole value, except for the bits that base64 shares with the surrounding text.
// Otherwise, a guess of a part of the value would be detectable as a match.
func encodedForms(g boundSecret, lower bool) []pattern {
	whole := func(v view, text, with []byte) pattern { return pattern{v, text, with, g.Name} }
	list := []pattern{whole(asWritten, g.value, []byte(g.Placeholder))}
	for v := percent; v <= allEscapes; v++ {
		list = append(list, whole(v, v.plainForm(g.value, lower), []byte(g.Placeholder)))
	}
	// A part of the value may look like an escape of another encoding.
	list = append(list, whole(allEscapes, allEscapes.read(g.value, lower), []byte(g.Placeholder)))

	coded := []byte(base64.StdEncoding.EncodeToString(g.value))
	list = append(list, whole(inBase64, coded, []byte(base64.StdEncoding.EncodeToString([]byte(g.Placeholder)))))
	for _, core := range base64Cores(g.value) {
		list = append(list, whole(inBase64, core, nil))
	}
	list = append(list, whole(inHex, []byte(hex.EncodeToString(g.value)), []byte(hex.EncodeToString([]byte(g.Placeholder)))))
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		list = append(list, whole(asWritten, encodeUTF16(order, g.value), encodeUTF16(order, []byte(g.Placeholder))))
	}
	return list
}

// encodeUTF16 encodes a text in UTF-16.
func encodeUTF16(order binary.AppendByteOrder, text []byte) (out []byte) {
	for _, u := range utf16.Encode([]rune(string(text))) {
		out = order.AppendUint16(out, u)
	}
	return out
}

// minCore is the minimum length of base64 text that is treated as a value within a longer text.
// Shorter text may match by coincidence.
const minCore = 10

// base64Cores returns the base64 text of the value at each of the three
// offsets. It leaves out the characters at either end that also hold bits of
// the surrounding text.
func base64Cores(value []byte) (out [][]byte) {
	for offset, skip := range []int{0, 2, 3} {
		coded := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), value...))
		end := (offset + len(value)) * 8 / 6
		if end-skip >= minCore {
			out = append(out, bytes.Clone([]byte(coded[skip:end])))
		}
	}
	return out
}
