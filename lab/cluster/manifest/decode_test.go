// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

func decodeFile(t testing.TB, name string) []store.Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../store/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	objs, err := Decode(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

func TestDecodeErrors(t *testing.T) {
	const header = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: shop\n"
	tests := []struct {
		name, in string
		want     []string // one per line of the error
	}{{
		name: "unknown field with a guess",
		in:   header + "spec:\n  prots: []\n",
		want: []string{`m.yaml: document 1 (line 1): Service "shop/web": unknown field "spec.prots", did you mean "ports"? (allowed: allocateLoadBalancerNodePorts, clusterIP, clusterIPs, externalIPs,`},
	}, {
		name: "unknown field in a list",
		in:   header + "spec:\n  ports:\n  - port: 80\n  - port: 81\n    colour: red\n",
		want: []string{`Service "shop/web": unknown field "spec.ports[1].colour" (allowed: appProtocol, name, nodePort, port, protocol, targetPort)`},
	}, {
		name: "field names are case sensitive",
		in:   header + "spec:\n  Ports: []\n",
		want: []string{`unknown field "spec.Ports", did you mean "ports"?`},
	}, {
		name: "a wrong type",
		in:   header + "spec:\n  ports:\n  - port: \"80\"\n",
		want: []string{`Service "shop/web": spec.ports.port: wants int32, got string`},
	}, {
		name: "label values are strings",
		in:   "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels:\n    live: true\n",
		want: []string{`Pod "a": metadata.labels: wants a string, got a bool; YAML reads 1, true, yes and off as strings in quotes only`},
	}, {
		name: "integers have 32 bits",
		in:   header + "spec:\n  ports:\n  - port: 4294967376\n",
		want: []string{`spec.ports.port: wants int32, got number 4294967376`},
	}, {
		name: "types that parse themselves",
		in: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n" +
			"  - name: c\n    resources: {limits: {cpu: much}}\n",
		want: []string{`Pod "a": quantities must match the regular expression`},
	}, {
		name: "duplicate fields in the second document, with lines of the file",
		in:   "# nothing\n---\n" + header + "---\n" + header + "spec:\n  type: NodePort\n  type: ClusterIP\nspec: {}\n",
		want: []string{
			`document 2 (line 8): Service "shop/web": line 16: field "type" is given twice`,
			`document 2 (line 8): Service "shop/web": line 17: field "spec" is given twice`,
		},
	}, {
		name: "duplicate field in JSON",
		in:   `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "name": "b"}}`,
		want: []string{`document 1 (line 1): Namespace "b": duplicate field "metadata.name"`},
	}, {
		name: "YAML that does not parse, with the line of the file",
		in:   "apiVersion: v1\n---\nkind: Service\n\tspec: 1\n",
		want: []string{
			`document 1 (line 1): wants apiVersion and kind`,
			`document 2 (line 2): line 4: found`,
		},
	}, {
		name: "JSON that does not parse",
		in:   "{\"apiVersion\": \"v1\",\n\"kind\": }",
		want: []string{`m.yaml: document 1 (line 1): line 2: invalid character '}'`},
	}, {
		name: "kinds the store does not know",
		in:   "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a}\n",
		want: []string{`Gateway "a": kind Gateway of gateway.networking.k8s.io/v1 is not known (known: Namespace (v1), Node (v1), ServiceCIDR (networking.k8s.io/v1), `},
	}, {
		name: "old versions of known kinds",
		in:   "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: a}\n",
		want: []string{`Deployment "a": apiVersion "extensions/v1beta1" is not known for this kind (allowed: apps/v1)`},
	}, {
		name: "not an object",
		in:   "- a\n- b\n",
		want: []string{`wants an object with apiVersion and kind, got a list`},
	}, {
		name: "inside a list",
		in: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: ok}\n" +
			"- apiVersion: v1\n  kind: Namespace\n  metadata: {nam: a}\n- 5\n",
		want: []string{
			`document 1 (line 1): item 2 Namespace: unknown field "metadata.nam", did you mean "name"?`,
			`document 1 (line 1): item 3: wants an object, got the value 5`,
		},
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			objs, err := Decode("m.yaml", []byte(test.in))
			if err == nil {
				t.Fatalf("no error, but %d objects", len(objs))
			}
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(test.want) || objs != nil {
				t.Fatalf("%d objects and %d errors, want %d:\n%v", len(objs), len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("error %d:\n%s\nwant in it:\n%s", i, got[i], want)
				}
			}
			if bad := (*DecodeError)(nil); !errors.As(err, &bad) || bad.Source != "m.yaml" {
				t.Errorf("no DecodeError with the source in %v", err)
			}
		})
	}
}

func TestDecodeKnown(t *testing.T) {
	const unknown = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 3}\n"
	const known = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"
	objects, skipped, err := DecodeKnown("m.yaml", []byte(unknown+"---\n"+known))
	if err != nil || len(objects) != 1 || objects[0].GetName() != "b" || len(skipped) != 1 ||
		!strings.HasPrefix(skipped[0].Error(), `m.yaml: document 1 (line 1): Widget "a": kind Widget of example.com/v1 is not known`) {
		t.Errorf("got %v, %v, %v", objects, skipped, err)
	}
	if _, _, err := DecodeKnown("m.yaml", []byte(unknown+"---\n"+known+"spec: {colour: red}\n")); err == nil ||
		!strings.Contains(err.Error(), "spec.colour") {
		t.Errorf("a mistake in a known kind: %v", err)
	}
}

func TestDecodeForms(t *testing.T) {
	const want = "Namespace a,Namespace b"
	const a, b = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n",
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: b\n"
	const ja, jb = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}`
	for name, in := range map[string]string{
		"documents":          a + "---\n" + b,
		"markers everywhere": "---\n# first\n" + a + "...\n---\n---\n" + b + "---\n...\n",
		"carriage returns":   strings.ReplaceAll(a+"---\n"+b, "\n", "\r\n"),
		"after the marker":   "--- " + ja + "\n--- # two\n" + b,
		"JSON stream":        ja + "\n" + jb,
		"indented JSON": "\n\t{\n\t\"apiVersion\":\t\"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": " +
			"\"a\"}}" + jb,
		"List": `{"apiVersion":"v1","kind":"List","items":[` + ja + "," + jb + "]}",
		"typed list": "apiVersion: v1\nkind: NamespaceList\nmetadata: {resourceVersion: '5'}\nitems:\n- " +
			"metadata: {name: a}\n- metadata: {name: b}\n",
		"list within a list": `{"apiVersion":"v1","kind":"List","items":[` + ja +
			`,{"apiVersion":"v1","kind":"List","items":[` + jb + "]}]}",
		"a dash in the middle": a + "  annotations:\n    x: |\n      ---\n      y\n---\n" + b,
	} {
		t.Run(name, func(t *testing.T) {
			objs, err := Decode("m", []byte(in))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objs {
				got = append(got, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
			}
			if s := strings.Join(got, ","); s != want {
				t.Errorf("got %s, want %s", s, want)
			}
		})
	}
	if objs, err := Decode("empty", []byte("# nothing here\n---\n\n")); err != nil || len(objs) > 0 {
		t.Errorf("an empty manifest gives %d objects and %v", len(objs), err)
	}
}

// The manifests that an article about Services prints.
func TestDecodeSeedManifests(t *testing.T) {
	for file, want := range map[string]string{
		"frontend-deployment.yaml": "Deployment webapp",
		"backend-deployment.yaml":  "Deployment auth",
		"services.yaml":            "Service frontend,Service backend",
		"nodeport.yaml":            "Service frontend",
		"nodeport-local.yaml":      "Service frontend",
		"networkpolicy.yaml":       "NetworkPolicy allow-db-access,Deployment backend",
	} {
		var got []string
		for _, o := range decodeFile(t, file) {
			got = append(got, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
		}
		if s := strings.Join(got, ","); s != want {
			t.Errorf("%s: %s, want %s", file, s, want)
		}
	}
	objs := decodeFile(t, "networkpolicy.yaml")
	policy, backend := objs[0].(*networkingv1.NetworkPolicy), objs[1].(*appsv1.Deployment)
	if got := policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels["networking/allow-db-access"]; got != "true" {
		t.Errorf("policy selects allow-db-access %q", got)
	}
	pod := backend.Spec.Template.Spec
	if pod.Volumes[0].EmptyDir == nil || pod.InitContainers[0].Command[2] != "echo $HOSTNAME > /work-dir/index.html" {
		t.Errorf("volumes %+v, command %q", pod.Volumes, pod.InitContainers[0].Command)
	}
	if svc := decodeFile(t, "nodeport-local.yaml")[0].(*corev1.Service); svc.Spec.ExternalTrafficPolicy != "Local" ||
		svc.Spec.Ports[0].NodePort != 31380 {
		t.Errorf("spec %+v", svc.Spec)
	}
}

func TestEncodeDecode(t *testing.T) {
	var in []store.Object
	for _, file := range []string{"frontend-deployment.yaml", "services.yaml", "nodeport-local.yaml",
		"networkpolicy.yaml"} {
		in = append(in, decodeFile(t, file)...)
	}
	in = append(in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec: corev1.PodSpec{NodeName: "n1"}})
	for _, o := range in {
		store.ResourceOf(o).SetTypeMeta(o)
	}
	var text bytes.Buffer
	if err := Encode(&text, in...); err != nil {
		t.Fatal(err)
	}
	for _, noise := range []string{"status", "null", "resources", "strategy", "creationTimestamp"} {
		if strings.Contains(text.String(), noise) {
			t.Errorf("%q in\n%s", noise, text.String())
		}
	}
	for _, meaning := range []string{"emptyDir: {}"} {
		if !strings.Contains(text.String(), meaning) {
			t.Errorf("no %q in\n%s", meaning, text.String())
		}
	}
	out, err := Decode("encoded", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(in) {
		t.Fatalf("%d objects, want %d", len(out), len(in))
	}
	for i := range in {
		if !apiequality.Semantic.DeepEqual(out[i], in[i]) {
			t.Errorf("%s: %+v, want %+v", store.KeyOf(in[i]), out[i], in[i])
		}
	}
}
