package schema

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/brig-run/brig"
)

// mask replaces the hidden part of a secret.
const mask = "****"

// shown is the number of trailing characters of a secret that remain visible.
// hidden is the minimum length of the masked part: shorter secrets are masked
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

// MaskSecrets returns a JSON configuration with its secrets masked.
func MaskSecrets(raw []byte, fields []brig.ConfigField) ([]byte, error) {
	return ReplaceSecrets(raw, fields, func(_, s string) string { return Mask(s) })
}

// RestoreSecrets replaces every secret that is still in its masked form with its value
// in before. It returns an error if a different recipient would receive such a
// value or a secret from the server's environment, because the caller may not
// know these secrets.
func RestoreSecrets(raw, before []byte, fields []brig.ConfigField) ([]byte, error) {
	was := map[string]json.RawMessage{}
	if len(before) > 0 {
		if err := json.Unmarshal(before, &was); err != nil {
			return nil, err
		}
	}
	kept := ""
	out, err := ReplaceSecrets(raw, fields, func(name, s string) string {
		var old string
		if json.Unmarshal(was[name], &old) == nil && strings.HasPrefix(s, mask) && s == Mask(old) {
			kept = name
			return old
		}
		return s
	})
	if err != nil {
		return out, err
	}
	now := map[string]json.RawMessage{}
	_ = json.Unmarshal(out, &now) // JSON other than an object has no secrets
	if kept != "" {
		if err := checkRecipient(kept, now, was, fields); err != nil {
			return nil, err
		}
	}
	for _, f := range fields {
		if !f.FromEnvironment || isGiven(now, f.Name) {
			continue
		}
		former := was
		if isGiven(was, f.Name) {
			former = nil // the environment's secret was not in use, so compare with the environment's recipient
		}
		if err := checkRecipient(f.Name, now, former, fields); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isGiven reports whether a configuration contains a field. A null value counts as
// absent.
func isGiven(config map[string]json.RawMessage, name string) bool {
	v, ok := config[name]
	return ok && string(v) != "null"
}

// checkRecipient returns an error if a configuration sends a secret to a different
// recipient than the former configuration.
func checkRecipient(secret string, now, was map[string]json.RawMessage, fields []brig.ConfigField) error {
	for _, f := range fields {
		if f.Destination && !isSameSetting(now[f.Name], was[f.Name], f.Default) {
			invalid := brig.Errorf(brig.InvalidConfig, "with this change another recipient may receive %s", secret).
				WithHint("give %s again, not masked", secret)
			invalid.Field = f.Name
			return invalid
		}
	}
	return nil
}

// isSameSetting reports whether two settings are equal. A missing setting has the
// default value, or is empty if there is no default.
func isSameSetting(a, b json.RawMessage, byDefault any) bool {
	value := func(raw json.RawMessage) any {
		var v any
		if json.Unmarshal(raw, &v) != nil || v == nil {
			if text, err := json.Marshal(byDefault); err == nil {
				_ = json.Unmarshal(text, &v) // text comes from Marshal
			}
		}
		if v == nil || v == "" || v == false || v == 0.0 {
			return nil
		}
		return v
	}
	return reflect.DeepEqual(value(a), value(b))
}

// ReplaceSecrets replaces the secrets of a configuration. It returns JSON other than
// an object unchanged, because Decode reports the error.
func ReplaceSecrets(raw []byte, fields []brig.ConfigField, f func(name, s string) string) ([]byte, error) {
	var values map[string]json.RawMessage
	_ = json.Unmarshal(raw, &values) // JSON other than an object has no secrets
	if values == nil {
		return raw, nil
	}
	for _, field := range fields {
		var s string
		if !field.Secret || !isGiven(values, field.Name) || json.Unmarshal(values[field.Name], &s) != nil {
			continue
		}
		v, err := json.Marshal(f(field.Name, s))
		if err != nil {
			return nil, err
		}
		values[field.Name] = v
	}
	return json.Marshal(values)
}
