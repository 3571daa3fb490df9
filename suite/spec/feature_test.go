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

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		needs       []Feature
		want        Kind
		authorities int
	}{
		{nil, Promise, 0}, {[]Feature{NodePort, SCTP}, Promise, 0}, {[]Feature{NodePort, Topology, NodeHints}, Option, 2},
		{[]Feature{OpensFirewall, DropInvalid}, Option, 1}, {[]Feature{IPVS, SourceRanges}, Mechanism, 1},
	} {
		if kind, authorities := KindOf(c.needs); kind != c.want || len(authorities) != c.authorities {
			t.Errorf("%v: %s, %v; want %s, %d authorities", c.needs, kind, authorities, c.want, c.authorities)
		}
	}
}
