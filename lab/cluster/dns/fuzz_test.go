// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// Any pod may send any bytes to port 53.
func FuzzRespond(f *testing.F) {
	state := store.New(store.Config{Stack: lab.Dual})
	if err := state.Apply(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "away"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "web.default.svc.cluster.local"}},
	); err != nil {
		f.Fatal(err)
	}
	s := &Server{name: "d1", store: state}
	for _, q := range []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("web.default.svc.cluster.local."), Type: dnsmessage.TypeA},
		{Name: dnsmessage.MustNewName("_http._tcp.web.default.svc.cluster.local."), Type: dnsmessage.TypeSRV},
		{Name: dnsmessage.MustNewName("AWAY.default.svc.cluster.local."), Type: dnsmessage.TypeAAAA},
		{Name: dnsmessage.MustNewName("10-244-1-2.default.pod.cluster.local."), Type: dnsmessage.TypeA},
		{Name: dnsmessage.MustNewName("1.0.96.10.in-addr.arpa."), Type: dnsmessage.TypePTR},
		{Name: dnsmessage.MustNewName("1.ip6.arpa."), Type: dnsmessage.TypePTR},
		{Name: dnsmessage.MustNewName("dns-version.cluster.local."), Type: dnsmessage.TypeTXT},
		{Name: dnsmessage.MustNewName(serverName), Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassCHAOS},
	} {
		if q.Class == 0 {
			q.Class = dnsmessage.ClassINET
		}
		message := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{q},
			Additionals: []dnsmessage.Resource{opt(0)}}
		b, err := message.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, question []byte, stream bool) {
		limit := 0
		if stream {
			limit = streamSize
		}
		reply := s.respond(question, limit)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("the reply %x to %x: %v", reply, question, err)
		}
		if !m.Response || len(question) < 2 || m.ID != uint16(question[0])<<8|uint16(question[1]) || len(reply) > streamSize {
			t.Errorf("the reply to %x is %v", question, m.GoString())
		}
	})
}
