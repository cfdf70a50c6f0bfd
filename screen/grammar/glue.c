// The one door between a parser that runs in a cage and Go: it parses a
// source and hands out its tree, in the order of the source, a batch at a time.
#include <stdint.h>
#include <stdlib.h>
#include <tree_sitter/api.h>

const TSLanguage *tree_sitter_python(void);
const TSLanguage *tree_sitter_javascript(void);

#define EXPORT(name) __attribute__((export_name(#name))) name

static const TSLanguage *language(int32_t l) {
	return l == 0 ? tree_sitter_python() : tree_sitter_javascript();
}

uint32_t EXPORT(symbols)(int32_t l) { return ts_language_symbol_count(language(l)); }
const char *EXPORT(symbol)(int32_t l, uint32_t s) { return ts_language_symbol_name(language(l), s); }
uint32_t EXPORT(fields)(int32_t l) { return ts_language_field_count(language(l)) + 1; }
const char *EXPORT(field)(int32_t l, uint32_t f) { return ts_language_field_name_for_id(language(l), f); }
void *EXPORT(allocate)(uint32_t n) { return malloc(n); }

static TSTreeCursor cursor;
static uint32_t depth;
static int32_t more;

// parse returns 1, or 0 when there is no tree.
int32_t EXPORT(parse)(int32_t l, const char *source, uint32_t n) {
	TSParser *parser = ts_parser_new();
	if (!parser || !ts_parser_set_language(parser, language(l))) return 0;
	TSTree *tree = ts_parser_parse_string(parser, NULL, source, n);
	if (!tree) return 0;
	cursor = ts_tree_cursor_new(ts_tree_root_node(tree));
	depth = 0;
	more = 1;
	return 1;
}

static void step(void) {
	if (ts_tree_cursor_goto_first_child(&cursor)) {
		depth++;
		return;
	}
	while (!ts_tree_cursor_goto_next_sibling(&cursor)) {
		if (!ts_tree_cursor_goto_parent(&cursor)) {
			more = 0;
			return;
		}
		depth--;
	}
}

// nodes writes the next nodes, six numbers each, and returns how many: those
// that have a name, or a field of their parent's, or are wrong.
uint32_t EXPORT(nodes)(uint32_t *out, uint32_t most) {
	uint32_t n = 0;
	while (more && n < most) {
		TSNode node = ts_tree_cursor_current_node(&cursor);
		uint32_t field = ts_tree_cursor_current_field_id(&cursor);
		uint32_t wrong = ts_node_is_error(node) || ts_node_is_missing(node);
		if (field || wrong || ts_node_is_named(node)) {
			*out++ = ts_node_symbol(node);
			*out++ = field;
			*out++ = ts_node_start_byte(node);
			*out++ = ts_node_end_byte(node);
			*out++ = depth;
			*out++ = wrong;
			n++;
		}
		step();
	}
	return n;
}
