// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func newAccountStore(t *testing.T, c Config) *Store {
	t.Helper()
	s := newTestStore(t, c, "n1")
	if err := s.ServeAccounts([]byte("certificate")); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAccounts(t *testing.T) {
	s := newAccountStore(t, Config{Events: true})
	apply(t, s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, kind := range []Kind{KindServiceAccount, KindConfigMap} {
		name := map[Kind]string{KindServiceAccount: defaultAccount, KindConfigMap: rootCA}[kind]
		for range 2 {
			if o, ok := s.Object(kind, "shop", name); !ok || o.GetUID() == "" {
				t.Fatalf("%s %s: %v", kind, name, o)
			}
			if err := s.Delete(kind, "shop", name); err != nil { // it comes back
				t.Fatal(err)
			}
		}
	}
	if err := s.Delete(KindNamespace, "", "shop"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Object(KindNamespace, "", "shop"); ok {
		t.Error("the namespace does not go")
	}
	told(t, s)
	d := newDeployment("web", 1)
	d.Spec.Template.Spec.ServiceAccountName = "robot"
	apply(t, s, d)
	if all := strings.Join(told(t, s), "\n"); len(s.Snapshot().Pods) != 0 || !strings.Contains(all, "FailedCreate") {
		t.Errorf("without its account there are %d pods, and Events %s", len(s.Snapshot().Pods), all)
	}
	apply(t, s, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}})
	if len(s.Snapshot().Pods) != 1 {
		t.Error("no pod comes after its account")
	}
}

// A file may make a namespace and its first pod.
func TestAPodComesWithItsNamespace(t *testing.T) {
	s := newAccountStore(t, Config{})
	p := newPod("first", "n1", nil)
	p.Namespace = "shop"
	apply(t, s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, p)
	if got, ok := Get[*corev1.Pod](s, "shop", "first"); !ok || got.Spec.ServiceAccountName != defaultAccount {
		t.Errorf("%+v", got)
	}
}

func TestAccessVolume(t *testing.T) {
	s := newAccountStore(t, Config{})
	apply(t, s, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "shy"}, AutomountServiceAccountToken: ptr.To(false)})
	has := func(name string, change func(*corev1.Pod)) bool {
		p := newPod(name, "n1", nil)
		change(p)
		apply(t, s, p)
		apply(t, s, p) // again, as it was written
		spec := get[*corev1.Pod](t, s, name).Spec
		volume := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
		mount := slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == accountFolder
		})
		if volume != mount || len(spec.Volumes) > 1 {
			t.Errorf("%s: volumes %v, mounts %v", name, spec.Volumes, spec.Containers[0].VolumeMounts)
		}
		return mount
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"plain": {func(*corev1.Pod) {}, true},
		"no":    {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = ptr.To(false) }, false},
		"shy":   {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "shy" }, false},
		"shy-asks": {func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = "shy", ptr.To(true)
		}, true},
	} {
		if got := has(name, c.change); got != c.want {
			t.Errorf("%s: mounted %t, want %t", name, got, c.want)
		}
	}
	p := newPod("lost", "n1", nil)
	p.Spec.ServiceAccountName = "none"
	if err := s.Apply(p); err == nil || !strings.Contains(err.Error(), "spec.serviceAccountName") {
		t.Errorf("a pod without its account: %v", err)
	}
}

func TestTokens(t *testing.T) {
	now := epoch
	s := New(Config{Now: func() time.Time { return now }})
	apply(t, s, newNode("n1", ""), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, newPod("p", "n1", nil))
	issue := func(change func(*TokenRequest)) string {
		r := TokenRequest{Namespace: "default", Account: "robot"}
		change(&r)
		token, _, err := s.IssueToken(r)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	check := func(token, want string) {
		t.Helper()
		user, err := s.CheckToken(token)
		if err != nil && want == "" || err == nil && user != want {
			t.Errorf("user %q, error %v; want %q", user, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	const robot = "system:serviceaccount:default:robot"
	plain := issue(func(*TokenRequest) {})
	bound := issue(func(r *TokenRequest) { r.Pod = get[*corev1.Pod](t, s, "p") })
	check(plain, robot)
	check(bound, robot)
	check(issue(func(r *TokenRequest) { r.Audiences = []string{"vault"} }), "vault")
	for _, bad := range []string{"", "a.b.c", plain + "x", plain[:len(plain)-4], strings.Replace(plain, ".", ".e", 1)} {
		check(bad, "not one of this cluster")
	}
	if _, err := newTestStore(t, Config{}).CheckToken(plain); err == nil {
		t.Error("another cluster takes the token")
	}
	deleteWith(t, s, KindPod, "p", DeleteOptions{})
	check(bound, "the pod of the token is gone")
	now = now.Add(time.Hour)
	check(plain, "expired")
	long := issue(func(r *TokenRequest) { r.Life = 2 * time.Hour })
	now = now.Add(time.Hour)
	check(long, robot)
	deleteWith(t, s, KindServiceAccount, "robot", DeleteOptions{})
	check(long, "ServiceAccount of the token is gone")
	if _, _, err := s.IssueToken(TokenRequest{Namespace: "default", Account: "robot"}); !apierrors.IsNotFound(err) {
		t.Errorf("a token of no account: %v", err)
	}
}
