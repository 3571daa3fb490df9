// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"strconv"
	"testing"
)

// TestAllFeatures: every constant of type Feature has a kind, and every option an authority.
func TestAllFeatures(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "feature.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			if typ, ok := s.(*ast.ValueSpec).Type.(*ast.Ident); !ok || typ.Name != "Feature" {
				continue
			}
			name, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared++
			f := Feature(name)
			if !f.Known() {
				t.Errorf("%s has no kind", name)
			}
			authority, err := url.Parse(f.Authority())
			if isOption := f.Kind() == Option; err != nil || isOption != (authority.Scheme == "https") {
				t.Errorf("%s, %s: its authority is %q", name, f.Kind(), f.Authority())
			}
		}
	}
	if declared != len(AllFeatures()) {
		t.Errorf("%d features are declared, and %d listed", declared, len(AllFeatures()))
	}
}
