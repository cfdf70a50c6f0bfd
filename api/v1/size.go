package v1

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is decoded from an integer or from a string
// with a unit, such as "512MiB", and encoded as an integer.
type Size int64

// Shape returns the JSON type of a Size for strict decoding.
func (Size) Shape(first byte) any {
	if first == '"' {
		return ""
	}
	return int64(0)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		n, err := ParseSize(text)
		*s = Size(n)
		return err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return errors.New("must be a whole number of bytes")
	}
	*s = Size(n)
	return nil
}

// ParseSize parses a human-readable size such as "512MiB", "1.5 GiB", "64k",
// "1000000". Units are powers of 1024, except for KB, MB, GB and TB, which are
// powers of 1000.
func ParseSize(text string) (int64, error) {
	text = strings.TrimSpace(text)
	end := strings.LastIndexAny(text, "0123456789.") + 1
	number, unit := text[:end], strings.ToLower(strings.TrimSpace(text[end:]))
	scale, ok := scaleOf(unit)
	if !ok || number == "" || strings.Trim(number, "0123456789.") != "" {
		return 0, errors.New(`must be a size such as "512MiB" or a number of bytes`)
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n > math.MaxInt64/scale {
			return 0, errors.New("is larger than any size")
		}
		return n * scale, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errors.New(`must be a size such as "512MiB" or a number of bytes`)
	}
	if f *= float64(scale); f >= math.MaxInt64 {
		return 0, errors.New("is larger than any size")
	}
	return int64(f), nil
}

func scaleOf(unit string) (int64, bool) {
	switch unit {
	case "", "b":
		return 1, true
	case "k", "ki", "kib":
		return 1 << 10, true
	case "m", "mi", "mib":
		return 1 << 20, true
	case "g", "gi", "gib":
		return 1 << 30, true
	case "t", "ti", "tib":
		return 1 << 40, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "tb":
		return 1e12, true
	}
	return 0, false
}

// Mode is a file's permission bits. It is decoded from an integer or from a
// string of octal digits, such as "0755", and encoded as an integer.
type Mode uint32

// Shape returns the JSON type of a Mode for strict decoding.
func (Mode) Shape(first byte) any {
	if first == '"' {
		return ""
	}
	return int64(0)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Mode) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	base, digits := 10, string(b)
	if strings.HasPrefix(digits, `"`) {
		base, digits = 8, strings.Trim(digits, `"`)
	}
	n, err := strconv.ParseUint(digits, base, 32)
	if err != nil || n > 0o777 {
		return errors.New(`must be permission bits, an integer to 511 or octal digits such as "0755"`)
	}
	*m = Mode(n)
	return nil
}
