import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpSession;
import java.io.IOException;
import java.util.UUID;

/** The app of the Tomcat stack. */
public class App extends HttpServlet {
    private static final String TEXT =
        "<p>All happy families are alike; each unhappy family is unhappy in its own way.</p>\n".repeat(60);
    private static final String MINUTE = "public, max-age=60";
    private static final String SECOND = "public, max-age=1";
    private final long started = System.currentTimeMillis() / 1000 * 1000;

    /** HttpServlet answers conditional requests for it. */
    @Override
    protected long getLastModified(HttpServletRequest request) {
        return request.getServletPath().equals("/article") ? started : -1;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        String path = request.getRequestURI();
        switch (path.startsWith("/until/") ? "/until" : path) {
            case "/page" -> page(response);
            case "/article" -> html(response, SECOND, "<h1>article</h1>");
            case "/language" -> language(request, response);
            case "/account" -> account(request, response, null);
            case "/account/expired" -> {
                sleep(0.7);
                account(request, response, "max-age=0");
            }
            case "/form" -> form(request, response);
            case "/until" -> until(path, response);
            case "/gone" -> response.sendError(410);
            case "/forbidden" -> response.sendError(403);
            case "/error" -> throw new IllegalStateException("an error of the application");
            case "/old" -> response.sendRedirect("/page");
            case "/slow" -> {
                sleep(Double.parseDouble(request.getParameter("seconds")));
                page(response);
            }
            case "/report" -> {
                sleep(Double.parseDouble(request.getParameter("seconds")));
                account(request, response, "no-store");
            }
            case "/echo" -> echo(request, response);
            default -> response.sendError(404);
        }
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response) throws IOException {
        if (request.getRequestURI().equals("/login")) {
            request.getSession().setAttribute("user", request.getParameter("user"));
            response.sendRedirect("/account");
        } else {
            echo(request, response);
        }
    }

    @Override
    protected void doPut(HttpServletRequest request, HttpServletResponse response) throws IOException {
        echo(request, response);
    }

    private static void html(HttpServletResponse response, String cacheControl, String heading) throws IOException {
        if (cacheControl != null) {
            response.setHeader("Cache-Control", cacheControl);
        }
        response.setContentType("text/html;charset=UTF-8");
        response.getWriter().print(heading + "\n" + TEXT);
    }

    private static void page(HttpServletResponse response) throws IOException {
        html(response, MINUTE, "<h1>page</h1>");
    }

    private static void language(HttpServletRequest request, HttpServletResponse response) throws IOException {
        String language = request.getLocale().getLanguage().equals("de") ? "de" : "en";
        response.addHeader("Vary", "Accept-Language");
        response.setHeader("Content-Language", language);
        html(response, MINUTE, "<h1>language=" + language + "</h1>");
    }

    private static void account(HttpServletRequest request, HttpServletResponse response, String cacheControl)
            throws IOException {
        HttpSession session = request.getSession(false);
        Object user = session == null ? null : session.getAttribute("user");
        html(response, cacheControl, "<h1>user=" + (user == null ? "nobody" : user) + "</h1>");
    }

    private static void form(HttpServletRequest request, HttpServletResponse response) throws IOException {
        String token = null;
        for (Cookie cookie : request.getCookies() == null ? new Cookie[0] : request.getCookies()) {
            token = cookie.getName().equals("visitor") ? cookie.getValue() : token;
        }
        if (token == null) {
            token = UUID.randomUUID().toString().replace("-", "");
            response.addCookie(new Cookie("visitor", token));
        }
        html(response, MINUTE, "<input value='token=" + token + "'>");
    }

    private static void until(String path, HttpServletResponse response) throws IOException {
        if (System.currentTimeMillis() / 1000 >= Long.parseLong(path.substring("/until/".length()))) {
            response.sendError(404);
        } else {
            html(response, SECOND, "<h1>still here</h1>");
        }
    }

    private static void echo(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] body = request.getInputStream().readAllBytes();
        long sum = 0;
        for (byte one : body) {
            sum += one & 0xff;
        }
        response.setHeader("Cache-Control", "no-store");
        response.setContentType("text/plain");
        response.getWriter().printf(
            "method=%s length=%d sum=%d%n", request.getMethod(), body.length, sum & 0xffffffffL);
    }

    private static void sleep(double seconds) {
        try {
            Thread.sleep((long) (seconds * 1000));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
