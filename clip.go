package brig

import "strings"

// Clip is as much of what somebody gave as is repeated to them: at most so many
// bytes, and a mark where more was. Half a letter at the cut is left out.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
