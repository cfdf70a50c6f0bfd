package tool

import (
	"fmt"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// maxError is how many characters are told of an error.
const maxError = 1000

// Truncate returns so many characters of a text, and says so if that is not
// all.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text
	}
	at := 0
	for range limit {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return fmt.Sprintf("%s... [NOTE: function output was truncated since it exceeded the character limit (%d > %d)]", text[:at], n, limit)
}

// ErrorText is what is told of a call that failed.
func ErrorText(name string, e *brig.ProgramError) string {
	text := fmt.Sprintf("Error executing function %s: %s: %s", name, e.Name, e.Message)
	if utf8.RuneCountInString(text) <= maxError {
		return text
	}
	return string([]rune(text)[:maxError])
}
