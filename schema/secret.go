package schema

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/brig-run/brig"
)

// mask replaces the hidden part of a secret.
const mask = "****"

// shown is the number of trailing characters of a secret that are shown. hidden
// is the minimum number of hidden characters: a shorter secret is hidden
// completely.
const shown, hidden = 4, 8

// Mask returns the masked form of a secret.
func Mask(s string) string {
	if s == "" {
		return ""
	}
	if len(s) < shown+hidden {
		return mask
	}
	return mask + s[len(s)-shown:]
}

// Masked returns a JSON configuration with its secrets masked.
func Masked(raw []byte, fields []brig.ConfigField) ([]byte, error) {
	return Replace(raw, fields, func(_, s string) string { return Mask(s) })
}

// Unmasked replaces every secret that is still in its masked form with its
// value in before. It returns an error if another recipient would receive that
// value, because the caller may not know it.
func Unmasked(raw, before []byte, fields []brig.ConfigField) ([]byte, error) {
	was := map[string]json.RawMessage{}
	if len(before) > 0 {
		if err := json.Unmarshal(before, &was); err != nil {
			return nil, err
		}
	}
	kept := ""
	out, err := Replace(raw, fields, func(name, s string) string {
		var old string
		if json.Unmarshal(was[name], &old) == nil && strings.HasPrefix(s, mask) && s == Mask(old) {
			kept = name
			return old
		}
		return s
	})
	if err != nil || kept == "" {
		return out, err
	}
	now := map[string]json.RawMessage{}
	_ = json.Unmarshal(raw, &now) // Replace has decoded it
	for _, f := range fields {
		if f.Destination && !sameSetting(now[f.Name], was[f.Name], f.Default) {
			wrong := brig.Errorf(brig.InvalidConfig, "with this change another recipient may receive %s", kept).
				WithHint("give %s again, not masked", kept)
			wrong.Field = f.Name
			return nil, wrong
		}
	}
	return out, nil
}

// sameSetting reports whether two settings are equal. A missing one has the default
// value, and without a default it is empty.
func sameSetting(a, b json.RawMessage, byDefault any) bool {
	value := func(raw json.RawMessage) any {
		var v any
		if json.Unmarshal(raw, &v) != nil || v == nil {
			if text, err := json.Marshal(byDefault); err == nil {
				_ = json.Unmarshal(text, &v) // came from Marshal
			}
		}
		if v == nil || v == "" || v == false || v == 0.0 {
			return nil
		}
		return v
	}
	return reflect.DeepEqual(value(a), value(b))
}

// Replace replaces the secrets of a configuration. It returns JSON other than
// an object unchanged, because Decode reports the error.
func Replace(raw []byte, fields []brig.ConfigField, f func(name, s string) string) ([]byte, error) {
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // other JSON has no secrets to replace
	if given == nil {
		return raw, nil
	}
	for _, field := range fields {
		var s string
		if !field.Secret || json.Unmarshal(given[field.Name], &s) != nil {
			continue
		}
		v, err := json.Marshal(f(field.Name, s))
		if err != nil {
			return nil, err
		}
		given[field.Name] = v
	}
	return json.Marshal(given)
}
