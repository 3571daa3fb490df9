// SPDX-License-Identifier: Apache-2.0

package spec

import (
	_ "embed"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"sync"
)

//go:embed feature.go
var featureSource string

// Meanings returns what each feature of this package means, as the comment of its constant says.
var Meanings = sync.OnceValue(func() map[Feature]string {
	meanings := map[Feature]string{}
	file, err := parser.ParseFile(token.NewFileSet(), "feature.go", featureSource, parser.ParseComments)
	if err != nil { // it is compiled, too
		panic(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		value, ok := n.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			return true
		}
		literal, ok := value.Values[0].(*ast.BasicLit)
		if kind, isIdent := value.Type.(*ast.Ident); !ok || !isIdent || kind.Name != "Feature" {
			return true
		}
		name, err := strconv.Unquote(literal.Value)
		if err == nil {
			meanings[Feature(name)] = meaning(value)
		}
		return true
	})
	return meanings
})

// meaning returns the comment of a constant without its name, on one line.
func meaning(value *ast.ValueSpec) string {
	text := value.Doc.Text()
	if text == "" {
		text = value.Comment.Text()
	}
	text = strings.TrimPrefix(text, value.Names[0].Name+": ")
	return strings.Join(strings.Fields(text), " ")
}
