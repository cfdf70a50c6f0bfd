package e2b

import (
	"encoding/json"
	"strings"
)

// levelInfo is the level of lines that do not state one.
const levelInfo = "info"

// maxStructured is the maximum length in bytes of a JSON line whose level is read.
const maxStructured = 64 << 10

// levelNames maps the names that programs use to levels.
var levelNames = map[string]string{
	"trace": "debug", "debug": "debug", "info": levelInfo, "information": levelInfo, "notice": levelInfo,
	"warn": "warn", "warning": "warn", "err": "error", "error": "error", "fatal": "error", "critical": "error", "panic": "error",
}

// levelOf returns the level that a line of a program's output states: in a field of a JSON object, in
// a field level=, or as a word in capitals at the beginning, after a time at most. Other lines have
// the level info.
func levelOf(line string) string {
	text := strings.TrimSpace(line)
	if strings.HasPrefix(text, "{") && len(text) <= maxStructured {
		var in struct {
			Level    any `json:"level"`
			Severity any `json:"severity"`
		}
		if json.Unmarshal([]byte(text), &in) == nil {
			for _, v := range []any{in.Level, in.Severity} {
				if level := levelOfValue(v); level != "" {
					return level
				}
			}
			return levelInfo
		}
	}
	const maxHead = 256 // bytes in which a level is expected
	head := strings.Fields(text[:min(len(text), maxHead)])
	for _, word := range head {
		if v, ok := strings.CutPrefix(word, "level="); ok {
			if level := levelNames[strings.ToLower(strings.Trim(v, `"`))]; level != "" {
				return level
			}
		}
	}
	for _, word := range head {
		if strings.ContainsAny(word, "0123456789") && !strings.ContainsAny(word, "[]<>") {
			continue // a time
		}
		name, _, _ := strings.Cut(strings.Trim(word, "[]<>(),:-"), ":")
		if name == strings.ToUpper(name) {
			if level := levelNames[strings.ToLower(name)]; level != "" {
				return level
			}
		}
		break
	}
	return levelInfo
}

// levelOfValue returns the level of a field in a JSON line. Loggers of Node.js use numbers.
func levelOfValue(v any) string {
	switch v := v.(type) {
	case string:
		return levelNames[strings.ToLower(v)]
	case float64:
		switch {
		case v >= 50:
			return "error"
		case v >= 40:
			return "warn"
		case v >= 30:
			return levelInfo
		case v >= 10:
			return "debug"
		}
	}
	return ""
}
