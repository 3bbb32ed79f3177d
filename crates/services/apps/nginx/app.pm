# The dynamic pages of the nginx stack, in nginx's embedded Perl.
package app;

use strict;
use warnings;
use nginx;

my $TEXT = "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n" x 60;

sub cookie {
    my ($r, $name) = @_;
    my $cookies = $r->header_in("Cookie") // "";
    return $cookies =~ /(?:^|;\s*)\Q$name\E=([^;]*)/ ? $1 : undef;
}

sub html {
    my ($r, $text) = @_;
    $r->send_http_header("text/html");
    $r->print($text) unless $r->header_only;
    return OK;
}

sub page {
    my $r = shift;
    $r->header_out("Cache-Control", "public, max-age=60");
    return html($r, "<h1>page</h1>\n$TEXT");
}

sub language {
    my $r = shift;
    my $language = ($r->header_in("Accept-Language") // "") =~ /^de/ ? "de" : "en";
    $r->header_out("Cache-Control", "public, max-age=60");
    $r->header_out("Vary", "Accept-Language");
    $r->header_out("Content-Language", $language);
    return html($r, "<h1>language=$language</h1>\n$TEXT");
}

sub login {
    my $r = shift;
    return 405 unless $r->has_request_body(\&logged_in);
    return OK;
}

sub logged_in {
    my $r = shift;
    my ($user) = ($r->request_body // "") =~ /^user=(\w+)/;
    $r->header_out("Set-Cookie", "session=" . ($user // "nobody") . "; Path=/; HttpOnly");
    $r->header_out("Location", "/account");
    $r->status(303);
    $r->send_http_header("text/html");
    return OK;
}

sub account {
    my $r = shift;
    my $user = cookie($r, "session") // "nobody";
    return html($r, "<h1>user=$user</h1>\n$TEXT");
}

sub expired {
    my $r = shift;
    $r->header_out("Cache-Control", "max-age=0");
    $r->sleep(700, \&account);
    return OK;
}

sub form {
    my $r = shift;
    my $token = cookie($r, "visitor");
    if (!defined $token) {
        $token = sprintf("%08x%08x", rand(2**32), rand(2**32));
        $r->header_out("Set-Cookie", "visitor=$token; Path=/");
    }
    $r->header_out("Cache-Control", "public, max-age=60");
    return html($r, "<input value='token=$token'>\n$TEXT");
}

sub until {
    my $r = shift;
    my ($time) = $r->uri =~ m{^/until/(\d+)};
    return 404 if !defined $time || time() >= $time;
    $r->header_out("Cache-Control", "public, max-age=1");
    return html($r, "<h1>still here</h1>\n$TEXT");
}

sub seconds {
    my $r = shift;
    return ($r->args // "") =~ /seconds=([\d.]+)/ ? $1 * 1000 : 0;
}

sub slow {
    my $r = shift;
    $r->sleep(seconds($r), \&page);
    return OK;
}

sub report {
    my $r = shift;
    $r->header_out("Cache-Control", "no-store");
    $r->sleep(seconds($r), \&account);
    return OK;
}

sub echo {
    my $r = shift;
    return OK if $r->has_request_body(\&echoed);
    return echoed($r);
}

sub echoed {
    my $r = shift;
    my $body = $r->request_body // "";
    if (my $file = $r->request_body_file) {
        local $/;
        open(my $handle, "<:raw", $file) or return 500;
        $body = <$handle>;
    }
    my $sum = length($body) ? unpack("%32C*", $body) : 0;
    $r->header_out("Cache-Control", "no-store");
    return html($r, sprintf("method=%s length=%d sum=%d\n", $r->request_method, length($body), $sum));
}

1;
