// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestAllFeatures: every constant of type Feature is in one of the lists.
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
			name, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared++
			if !Feature(name).Known() {
				t.Errorf("%s is in no list", name)
			}
		}
	}
	if declared != len(AllFeatures()) {
		t.Errorf("%d features are declared, and %d listed", declared, len(AllFeatures()))
	}
}
