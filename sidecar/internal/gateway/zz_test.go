package gateway
import ("testing";"fmt";"strings";"time";"net";"bufio";"net/http";"bytes")
func TestZZ(t *testing.T) {
	s := start(t, setup{})
	n := 100000
	for b := 0; b < n/1000; b++ {
		var sb strings.Builder
		for i := range 1000 { fmt.Fprintf(&sb, `{"payload":{"n":%d,"x":"%s"}}`+"\n", i, strings.Repeat("x",200)) }
		s.do(t, "POST", "/v1/topics/t/events", sb.String(), "Content-Type: application/x-ndjson")
	}
	for _, opts := range []string{`{"from":"earliest"}`, `{"from":"earliest","maxBatch":100}`} {
	c, _ := net.Dial("tcp", s.addr)
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", s.addr)
	r := bufio.NewReaderSize(c, 64<<10)
	http.ReadResponse(r, nil)
	text := []byte(`{"op":"SUBSCRIBE","topic":"t","opts":`+opts+`}`)
	c.Write(append([]byte{0x81, 0x80|byte(len(text)),0,0,0,0}, text...))
	began := time.Now()
	got := 0
	buf := make([]byte, 64<<10)
	for got < n*98/100 {
		k, err := r.Read(buf)
		if err != nil { t.Fatal(err) }
		got += bytes.Count(buf[:k], []byte(`"attempt":1`))
		if time.Since(began) > 20*time.Second { break }
	}
	fmt.Println(opts, got, time.Since(began), float64(got)/time.Since(began).Seconds())
	c.Close()
	}
}
