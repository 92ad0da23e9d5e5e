package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/test/require"
)

const (
	// longestLine is in characters, a tab is one.
	longestLine = 140
	// mostOperators of && and || may be in a condition: what has more has parts with names.
	mostOperators = 4
	// deepestIf is how many ifs may be in each other.
	deepestIf = 4
)

// builtin are the names of the language that may not mean anything else. Others, such as max, are good names where nothing is
// hidden that the function needs; the linter finds what is never used.
var builtin = map[string]bool{"any": true, "error": true, "string": true, "nil": true, "true": true, "false": true, "len": true,
	"append": true, "make": true}

func TestStyle(t *testing.T) {
	root := os.DirFS("../..")
	folders := workspace(t, root)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, folders, name)
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		faults, err := faultsOf(name, source)
		for _, fault := range faults {
			t.Error(fault)
		}
		return err
	})
	require.NoError(t, err)
}

// faultsOf lists what in a file breaks a rule of style, each with its place.
func faultsOf(name string, source []byte) (faults []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	fault := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
	}
	data := literals(files, file)
	for i, line := range bytes.Split(source, []byte("\n")) {
		if n := utf8.RuneCount(line); n > longestLine && !data[i+1] {
			fault(i+1, "%d characters; at most %d", n, longestLine)
		}
	}
	at := func(n ast.Node) int { return files.Position(n.Pos()).Line }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if count := operators(n); count > mostOperators {
				fault(at(n), "a condition of %d operators: name its parts", count)
				return false
			}
		case *ast.FuncDecl:
			if depth, inner := deepest(n.Body); depth > deepestIf {
				fault(at(inner), "%d ifs in each other", depth)
			}
		}
		for _, name := range declared(n) {
			if builtin[name.Name] {
				fault(at(name), "%s is a word of the language", name.Name)
			}
		}
		return true
	})
	return faults, nil
}

// literals are the lines of texts that have several, such as expected output, and of the tags of fields. They are data.
func literals(files *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			lines[files.Position(field.Tag.Pos()).Line] = true
		}
		text, ok := n.(*ast.BasicLit)
		if ok && text.Kind == token.STRING {
			first, last := files.Position(text.Pos()).Line, files.Position(text.End()).Line
			for line := first; first < last && line <= last; line++ {
				lines[line] = true
			}
		}
		return true
	})
	return lines
}

// operators counts && and ||, those of functions in an operand aside.
func operators(e ast.Expr) (count int) {
	ast.Inspect(e, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
			count++
		}
		_, function := n.(*ast.FuncLit)
		return !function
	})
	return count
}

// deepest is how many ifs are in each other, and the innermost. An else if is no deeper than its if.
func deepest(n ast.Node) (depth int, inner ast.Node) {
	if n == nil {
		return 0, nil
	}
	ast.Inspect(n, func(child ast.Node) bool {
		statement, isIf := child.(*ast.IfStmt)
		if !isIf {
			return true
		}
		for ; statement != nil; statement, _ = statement.Else.(*ast.IfStmt) {
			d, in := deepest(statement.Body)
			if in == nil {
				in = statement
			}
			if d+1 > depth {
				depth, inner = d+1, in
			}
			if block, ok := statement.Else.(*ast.BlockStmt); ok {
				if d, in := deepest(block); d+1 > depth && in != nil {
					depth, inner = d+1, in
				}
			}
		}
		return false
	})
	return depth, inner
}

// declared are the names that a node declares.
func declared(n ast.Node) (names []*ast.Ident) {
	switch n := n.(type) {
	case *ast.FuncType:
		for _, list := range []*ast.FieldList{n.Params, n.Results} {
			if list == nil {
				continue
			}
			for _, field := range list.List {
				names = append(names, field.Names...)
			}
		}
		return names
	case *ast.ValueSpec:
		return n.Names
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.FuncDecl:
		if n.Recv == nil {
			return []*ast.Ident{n.Name}
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return identifiers(n.Lhs)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			return identifiers([]ast.Expr{n.Key, n.Value})
		}
	}
	return nil
}

func identifiers(list []ast.Expr) (names []*ast.Ident) {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id)
		}
	}
	return names
}

func TestFaultsAreFound(t *testing.T) {
	text := "package p\n\nfunc f(any, b bool) bool {\n\tif b {\n\t\tif b {\n\t\t\tif b {\n\t\t\t} else if b {\n\t\t\t\tif b " +
		"{\n\t\t\t\t\tif b {\n" +
		"\t\t\t\t\t}\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t}\n\tlen := b\n\treturn b || b || b || b || b || len // " + strings.Repeat("é", 120) + "\n}\n"
	got, err := faultsOf("p.go", []byte(text))
	want := []string{"p.go:16: 1", "p.go:9: 5 ifs", "p.go:3: any is", "p.go:15: len is", "p.go:16: a condition of 5"}
	if err != nil || len(got) != len(want) {
		t.Fatalf("%q, %v", got, err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q; want %q", got[i], want[i])
		}
	}
}
