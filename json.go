package brig

// JSONDepth is how deep objects and arrays lie in each other in a JSON document.
// It looks at every byte once, and does not mind what is no JSON.
func JSONDepth(doc []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}
