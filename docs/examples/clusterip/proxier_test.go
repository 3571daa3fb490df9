// SPDX-License-Identifier: Apache-2.0

//go:build linux

package clusterip_test

import (
	_ "embed"
	"testing"

	"github.com/onsi/gomega"
	"github.com/viplab/viplab/lab/labtest"
	"github.com/viplab/viplab/lab/match"
	"github.com/viplab/viplab/suite"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"

	"example.org/clusterip"
)

func TestMain(m *testing.M) { labtest.Main(m) }

//go:embed known.yaml
var known []byte

// TestConformance judges the proxier. Its subtests are scenarios: -run 'TestConformance/^hairpin-' chooses some.
func TestConformance(t *testing.T) {
	file, err := expect.Parse("known.yaml", known)
	if err != nil {
		t.Fatal(err)
	}
	suite.RunConformance(t, suite.Options{
		Proxiers: []spec.Proxier{clusterip.Proxier{}},
		Version:  "v0.1.0",
		Expect:   []*expect.File{file},
	})
}

// TestEndpointLeaves is a test of one's own: a labtest.Lab is a cluster that ends with the test.
func TestEndpointLeaves(t *testing.T) {
	l := labtest.New(t, labtest.Options{Proxier: clusterip.Proxier{}})
	l.ApplyFile("testdata/web.yaml")
	web := spec.ClusterIPOf("web", 80)
	first := l.Probe("shell", web)
	gomega.NewWithT(t).Expect(first.Answer).To(match.Replied())

	l.Delete("Pod", first.Answer.Server)
	second := l.Probe("shell", web)
	gomega.NewWithT(t).Expect(second.Answer).To(match.Replied())
	if second.Answer.Server == first.Answer.Server {
		t.Errorf("%s has answered after its end", first.Answer.Server)
	}
}
